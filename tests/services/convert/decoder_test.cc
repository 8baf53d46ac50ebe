#include "services/convert/decoder.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/dispatch_config.h"
#include "core/protocol_version.h"
#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/enums.h"
#include "services/convert/session.h"
#include "services/convert/step.h"
#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;
using testing::FailsWith;
using testing::RandomMessages;

TEST(DecoderTest, AMessageWithoutContentIsRefused) {
  ExpectRefuses(FromProto(v1::SessionRequest()), "SessionRequest.message");
  ExpectRefuses(FromProto(v1::SessionResponse()), "SessionResponse.message");
  ExpectRefuses(FromProto(v1::AttachRequest()), "AttachRequest.message");
  ExpectRefuses(FromProto(v1::AttachResponse()), "AttachResponse.message");
  ExpectRefuses(FromProto(v1::ForwardRequest()), "ForwardRequest.message");
  ExpectRefuses(FromProto(v1::ForwardResponse()), "ForwardResponse.message");
  v1::OpenSessionRequest open;
  open.set_protocol_version(kProtocolVersion);
  ExpectRefuses(FromProto(open), "OpenSessionRequest.options");
  v1::OpenSessionResponse opened;
  opened.set_protocol_version(kProtocolVersion);
  ExpectRefuses(FromProto(opened), "OpenSessionResponse.grant");
  ExpectRefuses(FromProto(v1::CloseSessionRequest()), "CloseSessionRequest.session_id");
  ExpectRefuses(FromProto(v1::WatchPlanRequest()), "WatchPlanRequest.session_id");
  ExpectRefuses(FromProto(v1::WatchPlanResponse()), "WatchPlanResponse.plan");
}

TEST(DecoderTest, DurationsOutsideTheirRangeAreRefused) {
  for (const auto& [seconds, nanos] : {std::pair<std::int64_t, std::int32_t>{-1, 0},
                                       {0, -1},
                                       {0, 1'000'000'000},
                                       {std::numeric_limits<std::int64_t>::max(), 0}}) {
    v1::OpenSessionRequest proto;
    proto.set_protocol_version(kProtocolVersion);
    proto.mutable_options()->mutable_step_deadline()->set_seconds(seconds);
    proto.mutable_options()->mutable_step_deadline()->set_nanos(nanos);

    ExpectRefuses(FromProto(proto), "OpenSessionRequest.options.step_deadline");
  }
}

// The names of an enumerator on both sides say the same thing; only "inproc" is spelled out.
TEST(DecoderTest, EnumeratorsMeanTheSameOnBothSides) {
  const auto proto_name = [](const std::string& prefix, absl::string_view name) {
    std::string out = prefix;
    for (const char c : name) out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return out;
  };
  for (std::size_t i = 0; i < kDeviceKinds; ++i) {
    const auto kind = static_cast<DeviceKind>(i);
    EXPECT_EQ(v1::DeviceKind_Name(EnumToProto(kind)),
              proto_name("DEVICE_KIND_", DeviceKindName(kind)));
  }
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    EXPECT_EQ(v1::Phase_Name(EnumToProto(phase)), proto_name("PHASE_", PhaseName(phase)));
  }
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    EXPECT_EQ(v1::DispatchMode_Name(EnumToProto(mode)),
              proto_name("DISPATCH_MODE_", DispatchModeName(mode)));
  }
  for (int i = 0; i <= static_cast<int>(WireEnum<DispatchDtype>::kLast); ++i) {
    const auto dtype = static_cast<DispatchDtype>(i);
    EXPECT_EQ(v1::DispatchDtype_Name(EnumToProto(dtype)),
              proto_name("DISPATCH_DTYPE_", DispatchDtypeName(dtype)));
  }
  for (const OutputDtype dtype : {OutputDtype::kBf16, OutputDtype::kF32}) {
    EXPECT_EQ(v1::OutputDtype_Name(EnumToProto(dtype)),
              proto_name("OUTPUT_DTYPE_", OutputDtypeName(dtype)));
  }
  for (int i = 0; i <= static_cast<int>(WireEnum<QuantScheme>::kLast); ++i) {
    const auto scheme = static_cast<QuantScheme>(i);
    EXPECT_EQ(v1::QuantScheme_Name(EnumToProto(scheme)),
              proto_name("QUANT_SCHEME_", QuantSchemeInfoOf(scheme).name));
  }
  for (int i = 0; i <= static_cast<int>(WireEnum<DtypeChoice>::kLast); ++i) {
    const auto choice = static_cast<DtypeChoice>(i);
    EXPECT_EQ(v1::DtypeChoice_Name(EnumToProto(choice)),
              proto_name("DTYPE_CHOICE_", DtypeChoiceName(choice)));
  }
  for (const TransportChoice choice :
       {TransportChoice::kAuto, TransportChoice::kShm, TransportChoice::kTcp}) {
    EXPECT_EQ(v1::TransportChoice_Name(EnumToProto(choice)),
              proto_name("TRANSPORT_CHOICE_", TransportChoiceName(choice)));
  }
  for (int i = 0; i <= static_cast<int>(WireEnum<Projection>::kLast); ++i) {
    const auto projection = static_cast<Projection>(i);
    EXPECT_EQ(v1::Projection_Name(EnumToProto(projection)) + "_PROJ",
              proto_name("PROJECTION_", ProjectionName(projection)));
  }
}

// Parses damaged bytes of `proto` and decodes what parses. What is accepted must encode again to a
// message that decodes to the same: nothing half-read is ever returned.
template <typename Proto, typename ToBack>
void Damage(RandomMessages& random, const Proto& proto, ToBack to_back, int* accepted) {
  std::string bytes = proto.SerializeAsString();
  for (std::uint64_t i = 1 + random.rng().Below(4); i > 0 && !bytes.empty(); --i) {
    const std::size_t at = random.rng().Below(bytes.size());
    switch (random.rng().Below(3)) {
      case 0:
        bytes[at] = static_cast<char>(random.rng().Next());
        break;
      case 1:
        bytes.erase(at, 1 + random.rng().Below(4));
        break;
      default:
        bytes.insert(at, 1, static_cast<char>(random.rng().Next()));
    }
  }
  Proto damaged;
  if (!damaged.ParseFromString(bytes)) return;
  const auto first = FromProto(damaged);
  if (!first.ok()) {
    // The latter where the version is damaged.
    EXPECT_THAT(first, ::testing::AnyOf(
                           FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest),
                           FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport)));
    return;
  }
  ++*accepted;
  to_back(*first);
}

TEST(DecoderTest, SurvivesRandomDamage) {
  const google::protobuf::LogSilencer no_complaints_about_the_damage;
  const std::uint64_t seed = 99;
  RandomMessages random(seed);
  int accepted = 0;
  const auto again = [](const auto& message) {
    const auto back = FromProto(ToProto(message));
    SY_ASSERT_OK(back);
    EXPECT_TRUE(*back == message);
  };
  const auto nothing = [](const auto& /*message*/) {};
  for (int round = 0; round < 2000 && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    Damage(random, ToProto(random.FromWorker()), again, &accepted);
    Damage(random, ToProto(random.FromCoordinator()), again, &accepted);
    Damage(random, ToProto(random.Grant()), again, &accepted);
    Damage(random, ToProto(random.Watch()), again, &accepted);
    Damage(random, ToProto(AttachMessage(random.Attach())), again, &accepted);
    Damage(random, ToProto(AttachAnswer(AttachGrant{random.Ring(), "mapped", "why"})), again,
           &accepted);
    Damage(random, ForwardOpen(random.Order()), nothing, &accepted);
    const std::vector<std::int32_t> ids{1, 2};
    const std::vector<float> weights{0.5F, 0.5F};
    Damage(random, ForwardStep({StepId{1}, LayerId{3}, 1, {}, ids, weights}), nothing, &accepted);
  }
  EXPECT_GT(accepted, 100);  // The damage is not always fatal: both ways are tried.
}

}  // namespace
}  // namespace switchyard
