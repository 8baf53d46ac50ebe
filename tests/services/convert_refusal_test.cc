// What Decode refuses, and how it says so; and that no bytes at all can make it crash.
#include <functional>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"

#include "core/dispatch_config.h"
#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/enums.h"
#include "services/convert/session.h"
#include "services/convert/step.h"
#include "tests/services/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::RandomMessages;

// BAD_REQUEST whose text and metadata name `field`.
template <typename T>
void ExpectRefuses(const absl::StatusOr<T>& result, const std::string& field) {
  EXPECT_THAT(result, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  const auto metadata = MetadataOf(result.status());
  EXPECT_EQ(metadata.count("field") > 0 ? metadata.at("field") : "", field);
  EXPECT_NE(std::string(result.status().message()).find(field), std::string::npos)
      << result.status();
}

v1::SessionRequest ARegister() {
  RandomMessages random(5);
  Register message{"w0", random.rng().NextId<Incarnation>(), "h:1", random.Capabilities(), {}};
  message.capabilities.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8};
  message.resident = {{"d", Epoch{1}, random.Digest(), true}, {"d", Epoch{2}, {}, false}};
  return ToProto(WorkerMessage(message));
}

v1::SessionResponse APrepare() {
  RandomMessages random(6);
  Prepare message{9, random.APlan(), random.Digest(), "/models/m", {random.Tensor()}};
  message.plan.workers = {random.Worker(), random.Worker()};
  message.plan.layers = {random.Layer()};
  message.plan.layers[0].experts = {{ExpertId{1}, WorkerOrdinal{0}, SlotId{0}}};
  message.plan.configs = {random.Config(), random.Config(), random.Config()};
  return ToProto(CoordinatorMessage(message));
}

TEST(ConvertRefusalTest, NamesThePathOfTheFieldInRegister) {
  const std::vector<std::pair<std::string, std::function<void(v1::Register*)>>> cases = {
      {"SessionRequest.register.incarnation", [](auto* m) { m->set_incarnation("abc"); }},
      {"SessionRequest.register.incarnation",
       [](auto* m) { m->set_incarnation(std::string(32, 'g')); }},
      {"SessionRequest.register.capabilities", [](auto* m) { m->clear_capabilities(); }},
      {"SessionRequest.register.capabilities.device",
       [](auto* m) { m->mutable_capabilities()->clear_device(); }},
      {"SessionRequest.register.capabilities.wire_dtypes[1]",
       [](auto* m) {
         m->mutable_capabilities()->set_wire_dtypes(1, static_cast<v1::DispatchDtype>(99));
       }},
      {"SessionRequest.register.capabilities.max_top_k",
       [](auto* m) { m->mutable_capabilities()->set_max_top_k(1U << 31); }},
      {"SessionRequest.register.capabilities.weight_bytes_max",
       [](auto* m) { m->mutable_capabilities()->set_weight_bytes_max(1ULL << 63); }},
      {"SessionRequest.register.resident[1].plan_hash",
       [](auto* m) { m->mutable_resident(1)->set_plan_hash("short"); }},
  };
  for (const auto& [field, damage] : cases) {
    v1::SessionRequest proto = ARegister();
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_register_());

    ExpectRefuses(FromProto(proto), field);
  }
}

TEST(ConvertRefusalTest, NamesThePathOfTheFieldInPrepare) {
  const std::vector<std::pair<std::string, std::function<void(v1::Prepare*)>>> cases = {
      {"SessionResponse.prepare.plan", [](auto* m) { m->clear_plan(); }},
      {"SessionResponse.prepare.plan_hash",
       [](auto* m) { m->set_plan_hash(std::string(31, 'x')); }},
      {"SessionResponse.prepare.plan.shape", [](auto* m) { m->mutable_plan()->clear_shape(); }},
      {"SessionResponse.prepare.plan.manifest",
       [](auto* m) { m->mutable_plan()->set_manifest(std::string(33, 'x')); }},
      {"SessionResponse.prepare.plan.shape.hidden",
       [](auto* m) { m->mutable_plan()->mutable_shape()->set_hidden(~0U); }},
      {"SessionResponse.prepare.plan.workers[1].device",
       [](auto* m) { m->mutable_plan()->mutable_workers(1)->clear_device(); }},
      {"SessionResponse.prepare.plan.layers[0].experts[0].slot",
       [](auto* m) { m->mutable_plan()->mutable_layers(0)->mutable_experts(0)->set_slot(~0U); }},
      {"SessionResponse.prepare.plan.configs[2].edge",
       [](auto* m) { m->mutable_plan()->mutable_configs(2)->clear_edge(); }},
      {"SessionResponse.prepare.plan.configs[2].edge.worker",
       [](auto* m) { m->mutable_plan()->mutable_configs(2)->mutable_edge()->clear_worker(); }},
      {"SessionResponse.prepare.plan.configs[0].mode",
       [](auto* m) { m->mutable_plan()->mutable_configs(0)->clear_mode(); }},
      {"SessionResponse.prepare.tensors[0].projection",
       [](auto* m) { m->mutable_tensors(0)->set_projection(static_cast<v1::Projection>(-1)); }},
      {"SessionResponse.prepare.tensors[0].sha256",
       [](auto* m) { m->mutable_tensors(0)->clear_sha256(); }},
  };
  for (const auto& [field, damage] : cases) {
    v1::SessionResponse proto = APrepare();
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_prepare());

    ExpectRefuses(FromProto(proto), field);
  }
}

TEST(ConvertRefusalTest, AMessageWithoutContentIsRefused) {
  ExpectRefuses(FromProto(v1::SessionRequest()), "SessionRequest.message");
  ExpectRefuses(FromProto(v1::SessionResponse()), "SessionResponse.message");
  ExpectRefuses(FromProto(v1::AttachRequest()), "AttachRequest.message");
  ExpectRefuses(FromProto(v1::AttachResponse()), "AttachResponse.message");
  ExpectRefuses(FromProto(v1::ForwardRequest()), "ForwardRequest.message");
  ExpectRefuses(FromProto(v1::ForwardResponse()), "ForwardResponse.message");
  ExpectRefuses(FromProto(v1::OpenSessionRequest()), "OpenSessionRequest.order");
  ExpectRefuses(FromProto(v1::OpenSessionResponse()), "OpenSessionResponse.grant");
  ExpectRefuses(FromProto(v1::CloseSessionRequest()), "CloseSessionRequest.session_id");
  ExpectRefuses(FromProto(v1::WatchPlanRequest()), "WatchPlanRequest.session_id");
  ExpectRefuses(FromProto(v1::WatchPlanResponse()), "WatchPlanResponse.plan");
}

TEST(ConvertRefusalTest, ANackNeedsAnError) {
  v1::SessionRequest proto = ToProto(
      WorkerMessage(PrepareNack{"d", Epoch{1}, 2, absl::DataLossError("tensor x is wrong")}));
  proto.mutable_prepare_nack()->clear_error();
  ExpectRefuses(FromProto(proto), "SessionRequest.prepare_nack.error");

  proto.mutable_prepare_nack()->mutable_error()->set_code(0);
  ExpectRefuses(FromProto(proto), "SessionRequest.prepare_nack.error");
}

TEST(ConvertRefusalTest, DurationsOutsideTheirRangeAreRefused) {
  for (const auto& [seconds, nanos] : {std::pair<std::int64_t, std::int32_t>{-1, 0},
                                       {0, -1},
                                       {0, 1'000'000'000},
                                       {std::numeric_limits<std::int64_t>::max(), 0}}) {
    v1::OpenSessionRequest proto;
    proto.mutable_order()->mutable_step_deadline()->set_seconds(seconds);
    proto.mutable_order()->mutable_step_deadline()->set_nanos(nanos);

    ExpectRefuses(FromProto(proto), "OpenSessionRequest.order.step_deadline");
  }
}

TEST(ConvertRefusalTest, StepsWhoseTablesDoNotFitAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(v1::ForwardStep*)>>> cases = {
      {"ForwardRequest.step.ids", [](auto* m) { m->set_ids(std::string(15, '\1')); }},
      {"ForwardRequest.step.weights", [](auto* m) { m->set_weights(std::string(8, '\1')); }},
      {"ForwardRequest.step.weights", [](auto* m) { m->set_weights(std::string(32, '\1')); }},
      {"ForwardRequest.step.tokens", [](auto* m) { m->set_tokens(~0U); }},
      {"ForwardRequest.step.ids", [](auto* m) { m->set_tokens(0); }},
      {"ForwardRequest.step.layer", [](auto* m) { m->set_layer(~0U); }},
  };
  const std::vector<std::int32_t> ids{1, 2, 3, -1};
  const std::vector<float> weights{0.5F, 0.25F, 0.125F, 0.0F};
  for (const auto& [field, damage] : cases) {
    v1::ForwardRequest proto = ForwardStep({StepId{1}, LayerId{3}, 2, {}, ids, weights});
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_step());

    ExpectRefuses(FromProto(proto), field);
  }
}

TEST(ConvertRefusalTest, AGrantWithoutCreditsIsRefused) {
  RandomMessages random(8);
  v1::ForwardResponse proto = ForwardOpened({random.Grant(), 0, "w0"});

  ExpectRefuses(FromProto(proto), "ForwardResponse.opened.credits");
}

// The names of an enumerator on both sides say the same thing; only "inproc" is spelt out.
TEST(ConvertRefusalTest, EnumeratorsMeanTheSameOnBothSides) {
  const auto proto_name = [](const std::string& prefix, absl::string_view name) {
    std::string out = prefix;
    for (const char c : name) out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return out;
  };
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kAscend}) {
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
    EXPECT_THAT(first, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
    return;
  }
  ++*accepted;
  to_back(*first);
}

TEST(ConvertRefusalTest, SurvivesRandomDamage) {
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
    Damage(random, ToProto(AttachAnswer(AttachGrant{random.Ring(), "mapped"})), again, &accepted);
    Damage(random, ForwardOpen(random.Order()), nothing, &accepted);
    const std::vector<std::int32_t> ids{1, 2};
    const std::vector<float> weights{0.5F, 0.5F};
    Damage(random, ForwardStep({StepId{1}, LayerId{3}, 1, {}, ids, weights}), nothing, &accepted);
  }
  EXPECT_GT(accepted, 100);  // The damage is not always fatal: both ways are tried.
}

}  // namespace
}  // namespace switchyard
