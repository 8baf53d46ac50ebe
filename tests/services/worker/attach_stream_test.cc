#include "services/worker/attach_stream.h"

#include <atomic>

#include "services/convert/attach.h"
#include "services/grpc/grpc_status.h"
#include "tests/services/worker_fixture.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::AttachLog;
using testing::FailsWith;
using testing::MakePlan;

class AttachStreamTest : public testing::WorkerFixture {};

TEST_F(AttachStreamTest, TheStreamIsTheAttachment) {
  Commit(1);
  AttachLog sink;

  auto stream = Attach(Order(1), &sink);

  ASSERT_TRUE(sink.log.WaitForLast("attached inproc"));
  ASSERT_TRUE(WaitForAttachments(1));
  EXPECT_NE(transport_.Find(sink.attachment), nullptr);
  stream.reset();
  EXPECT_TRUE(WaitForAttachments(0));
  EXPECT_EQ(transport_.open_links(), 0U);
}

TEST_F(AttachStreamTest, EachBindIsAnsweredAndReleaseLetsTheEpochGo) {
  Commit(1);
  AttachLog sink;
  const auto stream = Attach(Order(1), &sink);
  ASSERT_TRUE(sink.log.WaitForLast("attached"));
  Commit(2);

  stream->Bind({Epoch{2}, HashOf(MakePlan(2, 2))});
  stream->Bind({Epoch{2}, HashOf(MakePlan(1, 2))});
  stream->Bind({Epoch{9}, HashOf(MakePlan(9, 2))});
  ASSERT_TRUE(sink.log.WaitFor(4));
  std::promise<void> unbound;
  experts_->Retire("demo", Epoch{1}, [&unbound] { unbound.set_value(); });
  stream->Release({Epoch{1}});

  EXPECT_EQ(unbound.get_future().wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(sink.log.lines(),
            (std::vector<std::string>{"attached inproc", "bound 2 OK REASON_UNSPECIFIED",
                                      "bound 2 FAILED_PRECONDITION STALE_EPOCH",
                                      "bound 9 FAILED_PRECONDITION STALE_EPOCH"}));
  EXPECT_TRUE(WaitForAttachments(1));
}

TEST_F(AttachStreamTest, ARefusedAttachEndsWithItsReasonAndLeavesNothing) {
  AttachLog sink;

  const auto stream = Attach(Order(1), &sink);

  EXPECT_TRUE(sink.log.WaitForLast("ended FAILED_PRECONDITION STALE_EPOCH"));
  EXPECT_EQ(transport_.open_links(), 0U);
}

TEST_F(AttachStreamTest, AnEpochThatGoesAwayEndsTheStream) {
  Commit(1);
  AttachLog sink;
  const auto stream = Attach(Order(1), &sink);
  ASSERT_TRUE(sink.log.WaitForLast("attached"));

  experts_->Drop("demo", Epoch{1});

  EXPECT_TRUE(sink.log.WaitForLast("ended FAILED_PRECONDITION STALE_EPOCH"));
  EXPECT_TRUE(WaitForAttachments(0));
}

TEST_F(AttachStreamTest, ABrokenLinkEndsTheStream) {
  Commit(1);
  AttachLog sink;
  const auto stream = Attach(Order(1), &sink);
  ASSERT_TRUE(sink.log.WaitForLast("attached"));

  transport_.Break(transport_.Find(sink.attachment));

  EXPECT_TRUE(sink.log.WaitForLast("ended UNAVAILABLE"));
  EXPECT_TRUE(WaitForAttachments(0));
}

TEST_F(AttachStreamTest, ADyingServerEndsTheStreamAsWorkerLost) {
  Commit(1);
  AttachLog sink;
  const auto stream = Attach(Order(1), &sink);
  ASSERT_TRUE(sink.log.WaitForLast("attached"));

  server_.reset();

  EXPECT_TRUE(sink.log.WaitForLast("ended UNAVAILABLE WORKER_LOST"));
  EXPECT_TRUE(WaitForAttachments(0));
}

TEST_F(AttachStreamTest, MessagesOutOfPlaceEndTheStream) {
  Commit(1);
  const v1::AttachRequest attach = ToProto(AttachMessage(Order(1)));
  const v1::AttachRequest bind = ToProto(AttachMessage(BindRequest{Epoch{1}, {}}));
  const v1::AttachRequest release = ToProto(AttachMessage(ReleaseRequest{Epoch{1}}));
  const std::vector<std::vector<v1::AttachRequest>> scripts = {
      {bind}, {release}, {v1::AttachRequest()}, {attach, attach}, {attach, v1::AttachRequest()}};
  const auto stub = v1::ExpertService::NewStub(MakeGrpcChannel(endpoint_, kControlMessageBytesMax));
  for (const std::vector<v1::AttachRequest>& script : scripts) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    const auto stream = stub->Attach(&context);
    for (const v1::AttachRequest& request : script) stream->Write(request);

    v1::AttachResponse response;
    while (stream->Read(&response)) {
    }
    EXPECT_THAT(StatusFromGrpc(stream->Finish()),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  }
  EXPECT_TRUE(WaitForAttachments(0));
}

TEST_F(AttachStreamTest, AMessageOverTheControlLimitIsRefusedOnTheDataPortToo) {
  AttachRequest order = Order(1);
  order.reply_ring.address = std::string(kControlMessageBytesMax, 'a');
  v1::AttachRequest request = ToProto(AttachMessage(order));
  const auto stub =
      v1::ExpertService::NewStub(MakeGrpcChannel(endpoint_, 2 * kControlMessageBytesMax));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(20)));
  const auto stream = stub->Attach(&context);

  stream->Write(request);

  v1::AttachResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_THAT(StatusFromGrpc(stream->Finish()),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge));
}

// Sources that come and go at any moment, also while the worker is at work for them: no attachment
// outlives its stream.
TEST_F(AttachStreamTest, NoAttachmentOutlivesItsStream) {
  const std::uint64_t seed = 99;
  SeededRng rng(seed);
  Commit(1);
  for (int round = 0; round < 100; ++round) {
    AttachLog sink;
    const auto stream = Attach(Order(1, 1 + rng.Below(5)), &sink);
    for (std::uint64_t binds = rng.Below(4); binds > 0; --binds) {
      stream->Bind({Epoch{1 + rng.Below(2)}, HashOf(MakePlan(1, 2))});
    }
    if (rng.Below(2) == 0) sink.log.WaitFor(1);
  }

  server_.reset();  // Waits for every stream, also for those that the worker is still at work for.

  EXPECT_TRUE(WaitForAttachments(0)) << "seed " << seed;
  EXPECT_EQ(transport_.open_links(), 0U);
}

}  // namespace
}  // namespace switchyard
