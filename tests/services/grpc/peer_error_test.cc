#include "services/grpc/peer_error.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

const Peer kWorker{"worker", "h:1", Reason::kWorkerLost};

TEST(PeerErrorTest, WhatThePeerSaidStays) {
  const absl::Status said = MakeError(absl::StatusCode::kAborted, Reason::kEpochChanged, "x");

  EXPECT_EQ(AsPeerError(said, kWorker), said);
  SY_EXPECT_OK(AsPeerError(absl::OkStatus(), kWorker));
}

TEST(PeerErrorTest, GrpcsOwnErrorsMeanThatThePeerIsLost) {
  for (const absl::Status& status :
       {absl::UnavailableError("connection refused"), absl::CancelledError("reset"),
        absl::UnknownError("stream removed"), absl::InternalError("RST_STREAM"),
        absl::AbortedError("x"), absl::DeadlineExceededError("x")}) {
    const absl::Status lost = AsPeerError(status, kWorker);

    EXPECT_THAT(lost, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
    EXPECT_EQ(MetadataOf(lost).at("endpoint"), "h:1");
  }
}

TEST(PeerErrorTest, AWrongPortIsNoLostPeer) {
  EXPECT_THAT(AsPeerError(absl::UnimplementedError(""), kWorker),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(AsPeerError(absl::ResourceExhaustedError("x"), kWorker),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTransport));
}

}  // namespace
}  // namespace switchyard
