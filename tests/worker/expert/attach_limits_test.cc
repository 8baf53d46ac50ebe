// What one grant may make at a worker: so many attachments, and no larger slots than its steps use.
#include "worker/expert/attach_limits.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"

#include "tests/worker/expert/engine_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::kBothModes;
using testing::MakeAttachRequest;
using testing::MakePlan;

using AttachLimitsTest = testing::EngineFixture;

// A grant has no end and is good for any number of Attach: what it makes has a bound of its own,
// far below that of the worker.
TEST_F(AttachLimitsTest, AGrantMakesTwoAttachmentsAtMost) {
  const Source first = Attach(DispatchMode::kNormal);
  const Source second = Attach(DispatchMode::kNormal);
  const std::uint64_t rings = transport_.stats().ring_bytes;

  const absl::Status third = engine_->Attach(first.order).status();

  EXPECT_THAT(third, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
  EXPECT_THAT(std::string(third.message()),
              ::testing::HasSubstr(absl::StrCat("session ", ToHex(first.order.session),
                                                " has 2 attachments here, the most that one")));
  EXPECT_EQ(MetadataOf(third).at("limit"), "2");
  EXPECT_THAT(engine_->Admit(first.order).status(),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions))
      << "before its memory is made";
  EXPECT_EQ(transport_.stats().ring_bytes, rings);
  Attach(DispatchMode::kNormal, 2);  // another session is not concerned
  engine_->Close(first.grant.request_ring.attachment);
  Attach(DispatchMode::kNormal);
}

// A source asks for no larger slots than a chunk of its largest step has, and nobody else needs to.
TEST_F(AttachLimitsTest, AttachRefusesSlotsThatTheGrantHasNoUseFor) {
  for (const DispatchMode mode : kBothModes) {
    const MoeShape shape = testing::TestModel().shape;
    AttachRequest order = MakeAttachRequest(MakePlan(1, 2), mode, mode == DispatchMode::kNormal);
    order.max_tokens = 40;
    order = testing::Signed(std::move(order));
    const std::uint32_t rows = mode == DispatchMode::kNormal ? 40U : 120U;
    const auto answer = static_cast<std::uint32_t>(LayoutOfResult(rows, shape.hidden).frame_bytes);
    const auto chunk = static_cast<std::uint32_t>(LayoutOfRequest({.mode = mode,
                                                                   .format = kBf16Format,
                                                                   .rows = rows,
                                                                   .hidden = shape.hidden,
                                                                   .top_k = shape.top_k,
                                                                   .local_slots = shape.experts})
                                                      .frame_bytes);
    order.reply_ring.slot_bytes = answer;
    order.request_slot_bytes = chunk;
    AttachRequest replies = order;
    replies.reply_ring.slot_bytes += static_cast<std::uint32_t>(kFrameAlign);
    AttachRequest requests = order;
    requests.request_slot_bytes += 1;

    for (const AttachRequest& larger : {replies, requests}) {
      const absl::Status refused = engine_->Attach(larger).status();
      EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge));
      EXPECT_THAT(std::string(refused.message()),
                  ::testing::HasSubstr("granted for steps of 40 tokens, has no use for more than"));
    }
    EXPECT_EQ(transport_.open_links(), mode == DispatchMode::kNormal ? 0U : 1U);
    SY_EXPECT_OK(engine_->Attach(order));
  }
}

// Whoever has no grant cannot find out what a worker serves, nor whose sessions it has.
TEST_F(AttachLimitsTest, ACallerWithoutAGrantLearnsNothingOfWhatIsHere) {
  options_.attachments_max = 1;
  Restart();
  Attach(DispatchMode::kNormal);
  Commit(2);
  engine_->Retire("demo", Epoch{1}, now_, [] {});
  const auto answer = [this](const std::string& deployment, std::uint64_t epoch,
                             std::uint64_t session) {
    AttachRequest order = MakeAttachRequest(MakePlan(epoch, 2), DispatchMode::kNormal, session);
    order.deployment = deployment;
    order.caller = "spiffe://d/stranger";
    order.signature.bytes[0] ^= 1;
    const absl::Status refused = engine_->Attach(order).status();
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
    return absl::StrReplaceAll(refused.ToString(),
                               {{deployment, "D"}, {ToHex(order.session), "S"}});
  };

  const std::string never = answer("never", 1, 7);
  EXPECT_EQ(answer("demo", 2, 7), never) << "an epoch that serves";
  EXPECT_EQ(answer("demo", 1, 7), never) << "one that retires";
  EXPECT_EQ(answer("demo", 9, 7), never) << "one that does not exist";
  EXPECT_EQ(answer("demo", 2, 1), never) << "the session of another";
}

// A source that has its grant and an old plan is told to fetch the next, whatever is left here of
// its deployment.
TEST_F(AttachLimitsTest, ACallerWithAGrantIsToldThatItsPlanIsStale) {
  Commit(2);
  engine_->Retire("demo", Epoch{1}, now_, [] {});
  for (const std::uint64_t epoch : {1U, 9U}) {
    AttachRequest order = MakeAttachRequest(MakePlan(epoch, 2), DispatchMode::kNormal);
    order.caller = "spiffe://d/engine";
    EXPECT_THAT(engine_->Attach(order),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  }
}

}  // namespace
}  // namespace switchyard
