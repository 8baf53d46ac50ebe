// How the engine's attachments, bindings and epochs begin and end.
#include <memory>
#include <optional>

#include "tests/worker/expert/engine_fixture.h"

namespace switchyard {
namespace {

using namespace std::chrono_literals;
using testing::EngineFixture;
using testing::FailsWith;
using testing::FakeLink;
using testing::MakePlan;
using testing::TestRequest;

class EpochChangeTest : public EngineFixture {
 protected:
  // The request of `source`, as if it had switched to epoch 2.
  TestRequest InEpoch2(const Source& source, std::uint64_t seed) {
    Source later = source;
    later.order.epoch = Epoch{2};
    return Request(later, seed);
  }
  BindRequest Epoch1() { return {.epoch = Epoch{1}, .hash = HashOf(MakePlan(1, 2))}; }
  BindRequest Epoch2() { return {.epoch = Epoch{2}, .hash = HashOf(MakePlan(2, 2))}; }
};

TEST_F(EpochChangeTest, BothBoundEpochsServeUntilOneIsReleased) {
  const Source source = Attach(DispatchMode::kLowLatency);
  const AttachmentId number = source.grant.request_ring.attachment;
  Commit(2);

  SY_ASSERT_OK(engine_->Bind(number, Epoch2()));

  SY_EXPECT_OK(engine_->Bind(number, Epoch2()));  // Again is no harm.
  ExpectServed(source, Request(source, 1));
  ExpectServed(source, InEpoch2(source, 2));
  SY_ASSERT_OK(engine_->Release(number, {.epoch = Epoch{1}}));
  ExpectServed(source, InEpoch2(source, 3));
  ExpectRefused(source, Request(source, 4), absl::StatusCode::kFailedPrecondition,
                Reason::kStaleEpoch);
}

TEST_F(EpochChangeTest, BindRefusesWhatIsNotCommittedOrBeingRetired) {
  const Source source = Attach(DispatchMode::kNormal);
  const AttachmentId number = source.grant.request_ring.attachment;

  EXPECT_THAT(engine_->Bind(number, Epoch2()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  Commit(2);
  BindRequest wrong_hash = Epoch2();
  wrong_hash.hash.bytes[31] ^= 0x80;
  EXPECT_THAT(engine_->Bind(number, wrong_hash),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_THAT(engine_->Bind(AttachmentId{1}, Epoch2()),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
  EXPECT_THAT(engine_->Release(AttachmentId{1}, {.epoch = Epoch{1}}),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
  engine_->Retire("demo", Epoch{2}, now_, [] {});
  EXPECT_THAT(engine_->Bind(number, Epoch2()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

TEST_F(EpochChangeTest, BindRefusesAnEpochOfOtherSizes) {
  const Source source = Attach(DispatchMode::kNormal);
  Plan one_layer = MakePlan(2, 2);
  one_layer.layers.pop_back();
  std::erase_if(one_layer.configs, [](const auto& config) { return config.layer == LayerId{1}; });
  engine_->Activate(testing::MakeStaged(1, one_layer, &device_));

  EXPECT_THAT(engine_->Bind(source.grant.request_ring.attachment,
                            {.epoch = Epoch{2}, .hash = HashOf(one_layer)}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST_F(EpochChangeTest, RetireTellsWhenTheLastBindingIsGoneAndDropFrees) {
  const Source a = Attach(DispatchMode::kNormal, 1);
  const Source b = Attach(DispatchMode::kNormal, 2);
  Commit(2);
  SY_ASSERT_OK(engine_->Bind(a.grant.request_ring.attachment, Epoch2()));
  int unbound = 0;

  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });

  EXPECT_EQ(unbound, 0);
  SY_ASSERT_OK(engine_->Release(a.grant.request_ring.attachment, {.epoch = Epoch{1}}));
  EXPECT_EQ(unbound, 0);
  ExpectServed(b, Request(b, 5));
  engine_->Close(b.grant.request_ring.attachment);
  EXPECT_EQ(unbound, 1);
  StagedEpoch dropped = engine_->Drop("demo", Epoch{1});
  ASSERT_NE(dropped.runtime, nullptr);
  EXPECT_EQ(dropped.runtime.use_count(), 1);
  EXPECT_EQ(engine_->Drop("demo", Epoch{1}).runtime, nullptr);
  ExpectServed(a, InEpoch2(a, 6));
  EXPECT_EQ(unbound, 1);
}

TEST_F(EpochChangeTest, RetireOfAnUnboundOrUnknownEpochTellsAtOnce) {
  int unbound = 0;

  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });
  engine_->Retire("demo", Epoch{7}, now_, [&] { ++unbound; });

  EXPECT_EQ(unbound, 2);
  EXPECT_EQ(engine_->NextDeadline(), std::nullopt);
}

TEST_F(EpochChangeTest, ClosesWhatBindsNothingElseWhenItIsOverdue) {
  const Source late = Attach(DispatchMode::kNormal, 1);
  const Source moved = Attach(DispatchMode::kNormal, 2);
  Commit(2);
  SY_ASSERT_OK(engine_->Bind(moved.grant.request_ring.attachment, Epoch2()));
  SY_ASSERT_OK(engine_->Release(moved.grant.request_ring.attachment, {.epoch = Epoch{1}}));
  int unbound = 0;
  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });
  EXPECT_EQ(engine_->NextDeadline(), now_ + 5s);

  now_ += 5s - 1ns;
  ExpectServed(late, Request(late, 7));
  EXPECT_EQ(unbound, 0);
  now_ += 1ns;
  EXPECT_TRUE(engine_->Poll(now_));

  EXPECT_EQ(unbound, 1);
  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_EQ(closed_[0].first, late.grant.request_ring.attachment);
  EXPECT_THAT(closed_[0].second,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_EQ(transport_.open_links(), 1U);
  EXPECT_EQ(engine_->NextDeadline(), std::nullopt);
  ExpectServed(moved, InEpoch2(moved, 8));
}

// A step that began just before the source switched may take all of its deadline.
TEST_F(EpochChangeTest, ARetiredEpochStaysBoundForTheDeadlinesOfItsSteps) {
  const Source prefill = Attach(DispatchMode::kNormal, 1, 1, 30s);
  const Source decode = Attach(DispatchMode::kLowLatency, 2, 1, 1s);
  int unbound = 0;
  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });
  EXPECT_EQ(engine_->NextDeadline(), now_ + 6s);

  now_ += 6s;
  EXPECT_TRUE(engine_->Poll(now_));
  ASSERT_EQ(closed_.size(), 1U) << "each source by its own deadline";
  EXPECT_EQ(closed_[0].first, decode.grant.request_ring.attachment);
  EXPECT_EQ(engine_->NextDeadline(), now_ + 29s);
  now_ += 29s - 1ns;
  ExpectServed(prefill, Request(prefill, 7));
  EXPECT_EQ(unbound, 0);
  now_ += 1ns;
  engine_->Poll(now_);

  EXPECT_EQ(unbound, 1);
  EXPECT_EQ(closed_.size(), 2U);
}

TEST_F(EpochChangeTest, AnOverdueSourceThatHasSwitchedKeepsItsAttachment) {
  const Source source = Attach(DispatchMode::kLowLatency, 1, 1, 10s);
  Commit(2);
  SY_ASSERT_OK(engine_->Bind(source.grant.request_ring.attachment, Epoch2()));
  int unbound = 0;
  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });

  now_ += 15s;
  engine_->Poll(now_);

  EXPECT_EQ(unbound, 1);
  EXPECT_TRUE(closed_.empty());
  EXPECT_EQ(engine_->NextDeadline(), std::nullopt);
  ExpectRefused(source, Request(source, 4), absl::StatusCode::kUnavailable, Reason::kStaleEpoch);
  ExpectServed(source, InEpoch2(source, 5));
  EXPECT_NE(engine_->Drop("demo", Epoch{1}).runtime, nullptr);
  EXPECT_TRUE(closed_.empty());
  ExpectRefused(source, Request(source, 6), absl::StatusCode::kUnavailable, Reason::kStaleEpoch);
}

// A request that has arrived is answered, however late.
TEST_F(EpochChangeTest, AStepThatTheDeviceHasOutlivesItsBinding) {
  const Source source = Attach(DispatchMode::kLowLatency, 1, 1, 1s);
  Commit(2);
  SY_ASSERT_OK(engine_->Bind(source.grant.request_ring.attachment, Epoch2()));
  engine_->Retire("demo", Epoch{1}, now_, [] {});
  const TestRequest last = Request(source, 9);
  Deliver(source, last);

  now_ += 6s;
  engine_->Poll(now_);

  EXPECT_EQ(Next().rows, last.expected);
}

TEST_F(EpochChangeTest, ALongerStepIsAnnouncedByAnotherBindAlsoWhileItsEpochRetires) {
  const Source source = Attach(DispatchMode::kNormal, 1, 1, 1s);
  engine_->Retire("demo", Epoch{1}, now_, [] {});
  BindRequest longer = Epoch1();
  longer.step_deadline = 60s;

  SY_ASSERT_OK(engine_->Bind(source.grant.request_ring.attachment, longer));
  SY_ASSERT_OK(engine_->Bind(source.grant.request_ring.attachment, Epoch1()));

  now_ += 65s - 1ns;
  ExpectServed(source, Request(source, 7));
  now_ += 1ns;
  engine_->Poll(now_);
  EXPECT_EQ(closed_.size(), 1U);
}

TEST_F(EpochChangeTest, ADeadlineBeyondAllBoundsIsBounded) {
  Attach(DispatchMode::kNormal, 1, 1, Duration::max());

  engine_->Retire("demo", Epoch{1}, now_, [] {});

  EXPECT_EQ(engine_->NextDeadline(), now_ + 5s + kStepDeadlineMax);
}

TEST_F(EpochChangeTest, AnUrgentRetireEndsBindingsBeforeTheirDeadlines) {
  const Source source = Attach(DispatchMode::kNormal, 1, 1, 60s);
  int unbound = 0;
  engine_->ShortenRetire("demo", Epoch{1}, now_, 3s);
  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });
  EXPECT_EQ(engine_->NextDeadline(), now_ + 65s) << "it was not retiring";

  engine_->ShortenRetire("demo", Epoch{1}, now_, 3s);
  engine_->ShortenRetire("demo", Epoch{1}, now_, Duration::max());

  now_ += 3s - 1ns;
  ExpectServed(source, Request(source, 7));
  now_ += 1ns;
  engine_->Poll(now_);
  EXPECT_EQ(unbound, 1);
}

TEST_F(EpochChangeTest, DropClosesWhatIsBound) {
  Attach(DispatchMode::kNormal);

  EXPECT_NE(engine_->Drop("demo", Epoch{1}).runtime, nullptr);

  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_THAT(closed_[0].second,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_FALSE(engine_->has_attachments());
}

TEST_F(EpochChangeTest, ABrokenLinkClosesItsAttachmentAndNoOther) {
  const Source broken = Attach(DispatchMode::kNormal, 1);
  const Source other = Attach(DispatchMode::kNormal, 2);
  Deliver(broken, Request(broken, 9));
  transport_.Break(broken.link);
  const TestRequest good = Request(other, 10);

  ExpectServed(other, good);

  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_EQ(closed_[0].first, broken.grant.request_ring.attachment);
  EXPECT_EQ(closed_[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(transport_.open_links(), 1U);
  int unbound = 0;
  engine_->Retire("demo", Epoch{1}, now_, [&] { ++unbound; });
  engine_->Close(other.grant.request_ring.attachment);
  EXPECT_EQ(unbound, 1);
}

TEST_F(EpochChangeTest, AReplyThatCannotBeSentClosesItsAttachment) {
  const Source broken = Attach(DispatchMode::kLowLatency, 1);
  const Source other = Attach(DispatchMode::kLowLatency, 2);
  broken.link->send_result =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "the peer is gone");
  Deliver(broken, Request(broken, 11, 0));
  Deliver(broken, Request(broken, 12, 1));
  TestRequest refused = Request(broken, 13, 2);
  refused.header.layer = LayerId{9};
  Deliver(broken, refused);

  ExpectServed(other, Request(other, 14));

  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_THAT(closed_[0].second, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(transport_.open_links(), 1U);
}

TEST_F(EpochChangeTest, SessionsOfOneSourceMayAttachAgain) {
  const Source first = Attach(DispatchMode::kNormal, 1);
  const Source second = Attach(DispatchMode::kNormal, 1);

  ExpectServed(first, Request(first, 15));
  ExpectServed(second, Request(second, 16));

  EXPECT_NE(first.grant.request_ring.attachment, second.grant.request_ring.attachment);
  EXPECT_EQ(engine_->CountersOf(first.order.session).size(), 2U);
}

}  // namespace
}  // namespace switchyard
