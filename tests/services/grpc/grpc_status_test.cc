#include "services/grpc/grpc_status.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

#include "core/base/failure_scope.h"
#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

// As clients read it that have the public messages, and back.
google::rpc::Status PublicOf(const v1::Status& own) {
  google::rpc::Status proto;
  EXPECT_TRUE(proto.ParseFromString(own.SerializeAsString()));
  return proto;
}
v1::Status OwnOf(const google::rpc::Status& proto) {
  v1::Status own;
  EXPECT_TRUE(own.ParseFromString(proto.SerializeAsString()));
  return own;
}

std::vector<absl::StatusCode> AllCodes() {
  std::vector<absl::StatusCode> codes;
  for (int code = 1; code <= 16; ++code) codes.push_back(static_cast<absl::StatusCode>(code));
  return codes;
}

// Everything that callers can see of a Status, including other payloads.
std::string Visible(const absl::Status& status) {
  std::string out = std::to_string(static_cast<int>(status.code())) + "|" +
                    std::string(status.message()) + "|" +
                    std::string(ReasonName(ReasonOf(status))) + "|" +
                    std::string(FailureScopeName(ScopeOf(status)));
  for (const auto& [key, value] : MetadataOf(status)) out += "|" + key + "=" + value;
  std::vector<std::string> others;
  status.ForEachPayload([&others](absl::string_view url, const absl::Cord& payload) {
    const std::string name(url);
    if (name.rfind("switchyard/", 0) != 0) others.push_back(name + ":" + std::string(payload));
  });
  std::sort(others.begin(), others.end());
  for (const std::string& other : others) out += "|" + other;
  return out;
}

std::string RandomText(SeededRng& rng, std::size_t bytes_max) {
  std::string text(rng.Below(bytes_max + 1), ' ');
  for (char& c : text) {
    c = "abc XYZ019\n\\=|\"%\t"[rng.Below(17)];
  }
  return text;
}

absl::Status RandomStatus(SeededRng& rng) {
  const std::vector<Reason> reasons = AllReasons();
  ErrorMetadata metadata;
  for (std::uint64_t i = rng.Below(5); i > 0; --i) {
    metadata.emplace_back("key" + std::to_string(rng.Below(9)), RandomText(rng, 60));
  }
  absl::Status status = MakeError(AllCodes()[rng.Below(16)], reasons[rng.Below(reasons.size())],
                                  RandomText(rng, 400), metadata);
  status = WithScope(status, static_cast<FailureScope>(rng.Below(4)));
  if (rng.Below(3) == 0) {
    status.SetPayload("type.googleapis.com/other.Detail", absl::Cord(RandomText(rng, 50)));
  }
  return status;
}

TEST(GrpcStatusTest, EveryCodeAndReasonRoundTrips) {
  for (const absl::StatusCode code : AllCodes()) {
    for (const Reason reason : AllReasons()) {
      const absl::Status status =
          MakeError(code, reason, "worker w1: what to do", {{"worker", "w1"}, {"layer", "7"}});

      EXPECT_EQ(Visible(StatusFromGrpc(StatusToGrpc(status))), Visible(status));
      EXPECT_EQ(Visible(StatusFromProto(StatusToProto(status))), Visible(status));
    }
  }
}

TEST(GrpcStatusTest, RandomStatusesRoundTripWithoutLoss) {
  const std::uint64_t seed = 411;
  SeededRng rng(seed);
  for (int round = 0; round < 3000; ++round) {
    const absl::Status status = RandomStatus(rng);

    const absl::Status back = StatusFromGrpc(StatusToGrpc(status));

    ASSERT_EQ(Visible(back), Visible(status)) << "seed " << seed << " round " << round;
    ASSERT_EQ(Visible(StatusFromGrpc(StatusToGrpc(back))), Visible(back)) << round;
  }
}

TEST(GrpcStatusTest, OkStaysOk) {
  SY_EXPECT_OK(StatusFromGrpc(StatusToGrpc(absl::OkStatus())));
  SY_EXPECT_OK(StatusFromProto(StatusToProto(absl::OkStatus())));
}

TEST(GrpcStatusTest, PlainStatusGetsNoInventedReason) {
  const absl::Status back = StatusFromGrpc(StatusToGrpc(absl::AbortedError("plain")));

  EXPECT_THAT(back, FailsWith(absl::StatusCode::kAborted, Reason::kUnspecified));
  EXPECT_EQ(back.message(), "plain");
}

TEST(GrpcStatusTest, ErrorInfoIsWhatAnyClientReads) {
  const absl::Status status = WithScope(
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "m", {{"epoch", "3"}}),
      FailureScope::kPeer);

  const google::rpc::Status proto = PublicOf(StatusToProto(status));

  ASSERT_EQ(proto.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(proto.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "STALE_EPOCH");
  EXPECT_EQ(info.domain(), "switchyard");
  EXPECT_EQ(info.metadata().at("epoch"), "3");
  EXPECT_EQ(info.metadata().at("failure_scope"), "peer");
}

TEST(GrpcStatusTest, UnavailableCarriesRetryInfo) {
  const absl::Status status =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone");

  const google::rpc::Status proto = PublicOf(StatusToProto(status));

  ASSERT_EQ(proto.details_size(), 2);
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(proto.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().nanos(), 100'000'000);
  EXPECT_EQ(RetryDelayOf(StatusFromProto(OwnOf(proto))), kDefaultRetryDelay);
  EXPECT_EQ(RetryDelayOf(absl::AbortedError("x")), std::nullopt);
}

TEST(GrpcStatusTest, KeepsTheRetryDelayOfAPeer) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  google::rpc::Status proto = PublicOf(StatusToProto(absl::UnavailableError("busy")));
  proto.clear_details();
  proto.add_details()->PackFrom(retry);

  const absl::Status status = StatusFromProto(OwnOf(proto));

  EXPECT_EQ(RetryDelayOf(status), std::chrono::seconds(2));
  EXPECT_EQ(StatusToProto(status).details_size(), 1);
}

TEST(GrpcStatusTest, AnAbsurdRetryDelayIsBounded) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(std::numeric_limits<std::int64_t>::max());
  retry.mutable_retry_delay()->set_nanos(-7);
  google::rpc::Status proto = PublicOf(StatusToProto(absl::UnavailableError("busy")));
  proto.clear_details();
  proto.add_details()->PackFrom(retry);

  EXPECT_EQ(RetryDelayOf(StatusFromProto(OwnOf(proto))), std::chrono::hours(1));
}

TEST(GrpcStatusTest, KeepsTheNameOfAReasonItDoesNotKnow) {
  google::rpc::ErrorInfo info;
  info.set_domain("switchyard");
  info.set_reason("FROM_THE_FUTURE");
  v1::Status proto;
  proto.set_code(9);
  proto.add_details()->PackFrom(info);

  const absl::Status status = StatusFromProto(proto);

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnspecified));
  EXPECT_EQ(MetadataOf(status).at("reason"), "FROM_THE_FUTURE");
}

TEST(GrpcStatusTest, AnotherDomainsErrorInfoIsNotTakenForOurs) {
  google::rpc::ErrorInfo info;
  info.set_domain("example.com");
  info.set_reason("STALE_EPOCH");
  v1::Status proto;
  proto.set_code(9);
  proto.add_details()->PackFrom(info);

  const absl::Status status = StatusFromProto(proto);

  EXPECT_EQ(ReasonOf(status), Reason::kUnspecified);
  EXPECT_TRUE(status.GetPayload("type.googleapis.com/google.rpc.ErrorInfo").has_value());
}

TEST(GrpcStatusTest, DetailsOfAnotherCodeAreIgnored) {
  const v1::Status proto =
      StatusToProto(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "inner"));

  const absl::Status status =
      StatusFromGrpc(grpc::Status(grpc::StatusCode::CANCELLED, "outer", proto.SerializeAsString()));

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kCancelled, Reason::kUnspecified));
  EXPECT_EQ(status.message(), "outer");
}

TEST(GrpcStatusTest, CodesOutsideTheListBecomeUnknown) {
  for (const int code : {-1, 17, 1000}) {
    v1::Status proto;
    proto.set_code(code);
    EXPECT_EQ(StatusFromProto(proto).code(), absl::StatusCode::kUnknown) << code;
  }
}

TEST(GrpcStatusTest, GrpcsOwnSizeErrorsGetTheirReason) {
  const absl::Status status =
      StatusFromGrpc(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                  "Received message larger than max (5000000 vs. 4194304)"));

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge));
}

// gRPC percent-encodes the text, sends it twice and the details in base64; a client of another
// language takes 8 KiB of trailers by default.
TEST(GrpcStatusTest, TheLargestErrorFitsIntoEightKib) {
  ErrorMetadata metadata;
  for (int i = 0; i < 400; ++i) metadata.emplace_back("k" + std::to_string(i), "value");
  metadata.emplace_back("long", std::string(100'000, 'v'));
  absl::Status status = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                                  std::string(50'000, '\xff') + std::string(50'000, '%'), metadata);
  status.SetPayload("type.googleapis.com/other", absl::Cord(std::string(100'000, 'p')));

  const grpc::Status sent = StatusToGrpc(status);

  const std::size_t wire = 3 * sent.error_message().size() + 4 * sent.error_details().size() / 3;
  EXPECT_LE(wire, 8000U);
  EXPECT_THAT(StatusFromGrpc(sent), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST(GrpcStatusTest, BytesThatAreNotUtf8DoNotBreakTheMessage) {
  const absl::Status status = MakeError(absl::StatusCode::kDataLoss, Reason::kCheckpoint,
                                        "tensor \xff\xfe", {{"tensor", "\xc0\x80"}});

  const absl::Status back = StatusFromGrpc(StatusToGrpc(status));

  EXPECT_THAT(back, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_EQ(back.message(), "tensor ??");
  EXPECT_EQ(MetadataOf(back).at("tensor"), "??");
}

TEST(GrpcStatusTest, DamagedDetailsNeverCrashAndKeepTheCode) {
  const google::protobuf::LogSilencer no_complaints_about_the_damage;
  const std::uint64_t seed = 77;
  SeededRng rng(seed);
  for (int round = 0; round < 3000; ++round) {
    const grpc::Status sent = StatusToGrpc(RandomStatus(rng));
    std::string details = sent.error_details();
    for (std::uint64_t i = rng.Below(4); i > 0 && !details.empty(); --i) {
      details[rng.Below(details.size())] = static_cast<char>(rng.Next());
    }

    const absl::Status back =
        StatusFromGrpc(grpc::Status(sent.error_code(), sent.error_message(), details));

    ASSERT_EQ(static_cast<int>(back.code()), static_cast<int>(sent.error_code()))
        << "seed " << seed << " round " << round;
  }
}

TEST(GrpcStatusTest, WithReasonIfNoneKeepsAReasonThatIsThere) {
  const absl::Status known = MakeError(absl::StatusCode::kAborted, Reason::kEpochChanged, "x");

  EXPECT_EQ(ReasonOf(WithReasonIfNone(known, Reason::kInternal)), Reason::kEpochChanged);
  EXPECT_EQ(ReasonOf(WithReasonIfNone(absl::UnavailableError("y"), Reason::kCoordinatorLost)),
            Reason::kCoordinatorLost);
  SY_EXPECT_OK(WithReasonIfNone(absl::OkStatus(), Reason::kInternal));
}

}  // namespace
}  // namespace switchyard
