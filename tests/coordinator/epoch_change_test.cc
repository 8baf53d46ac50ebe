// The two-phase switch, one transition a row: how the workers stand, and what has to be sent.
#include "coordinator/epoch_change.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/placement/contiguous.h"
#include "coordinator/plan_builder.h"
#include "core/rng.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::FailsWith;

constexpr std::uint64_t kNonce = 77;

Incarnation LifeOf(std::uint64_t n) {
  SeededRng rng(n);
  return rng.NextId<Incarnation>();
}

// Workers w0 and w1, in lives 1 and 2.
std::shared_ptr<const PlanUpdate> MakeUpdate(const DeploymentRecord& record) {
  std::vector<Candidate> candidates(2);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].worker.id = absl::StrCat("w", i);
    candidates[i].worker.incarnation = LifeOf(i + 1);
    candidates[i].capabilities = testing::MakeCapabilities();
  }
  PlanProposal proposal = BuildPlan(record, candidates, ContiguousPlacement()).value();
  proposal.plan.epoch = Epoch{3};
  const PlanHash hash = HashOf(proposal.plan);
  return std::make_shared<const PlanUpdate>(PlanUpdate{std::move(proposal.plan), hash});
}

class EpochChangeTest : public ::testing::Test {
 protected:
  EpochChangeTest()
      : record_(std::make_shared<const DeploymentRecord>(
            DeploymentRecord{CompleteSpec(testing::MakeSpec(2)).value(), testing::MakeFacts()})),
        update_(MakeUpdate(*record_)) {}

  // A change in `phase`, with no write in progress and 10 s for answers.
  EpochChange InPhase(ChangePhase phase) const {
    EpochChange change("demo", Epoch{3});
    if (phase == ChangePhase::kReserving) return change;
    change.BeginPreparing(update_, record_, keys_, "2 of 64 experts move", kNonce,
                          now_ + seconds(10));
    if (phase == ChangePhase::kPreparing) return change;
    EXPECT_TRUE(change.Advance(std::vector(2, With(HoldState::kPrepared)), now_).write);
    if (phase == ChangePhase::kStoring) return change;
    change.BeginCommitting(now_ + seconds(10));
    if (phase == ChangePhase::kCommitting) return change;
    EXPECT_TRUE(change.Advance(std::vector(2, With(HoldState::kCommitted)), now_).write);
    return change;
  }
  static WorkerStanding With(std::optional<HoldState> hold) {
    return {.connected = true, .lost = false, .hold = hold, .has_room = true};
  }
  // "prepare 0 1", "commit 1", "write", "fail: <reason> <culprits>".
  static std::string TextOf(const ChangeStep& step) {
    std::string text;
    const auto add = [&text](const auto&... parts) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", parts...);
    };
    for (const WorkerOrdinal w : step.prepare) add("prepare ", w.value);
    for (const WorkerOrdinal w : step.commit) add("commit ", w.value);
    if (step.write) add("write");
    if (step.failure) {
      add("fail ", ReasonName(ReasonOf(step.failure->why)));
      for (const std::string& id : step.failure->culprits) absl::StrAppend(&text, " ", id);
      if (step.failure->retry_at_once) absl::StrAppend(&text, " at once");
    }
    return text;
  }

  TimePoint now_{seconds(100)};
  const GrantKeys keys_{GrantKey{{1, 2}}, GrantKey{{3}}};
  std::shared_ptr<const DeploymentRecord> record_;
  std::shared_ptr<const PlanUpdate> update_;
};

TEST_F(EpochChangeTest, AsksEveryWorkerForWhatItHasNotGivenAndGoesOnWhenAllHave) {
  using enum HoldState;
  using enum ChangePhase;
  const WorkerStanding none = With(std::nullopt);
  const WorkerStanding full{.connected = true, .lost = false, .hold = {}, .has_room = false};
  const WorkerStanding away{.connected = false, .lost = false, .hold = {}, .has_room = true};
  const WorkerStanding lost{.connected = false, .lost = true, .hold = {}, .has_room = false};
  WorkerStanding prepared_away = With(kPrepared);
  prepared_away.connected = false;
  struct Row {
    ChangePhase phase;
    std::vector<WorkerStanding> workers;
    std::string step;
    ChangePhase next;
  };
  const std::vector<Row> rows = {
      {kReserving, {}, "", kReserving},
      {kPreparing, {none, none}, "prepare 0, prepare 1", kPreparing},
      {kPreparing, {With(kPrepareSent), none}, "prepare 1", kPreparing},
      {kPreparing, {With(kPrepared), full}, "", kPreparing},
      {kPreparing, {With(kPrepared), away}, "", kPreparing},
      {kPreparing, {With(kPrepared), With(kPrepareSent)}, "", kPreparing},
      {kPreparing, {With(kPrepared), With(kPrepared)}, "write", kStoring},
      {kPreparing, {With(kPrepared), prepared_away}, "write", kStoring},
      {kPreparing, {none, lost}, "fail WORKER_LOST w1 at once", kPreparing},
      {kStoring, {With(kPrepared), lost}, "", kStoring},
      {kCommitting, {With(kPrepared), With(kPrepared)}, "commit 0, commit 1", kCommitting},
      {kCommitting, {With(kCommitSent), With(kPrepared)}, "commit 1", kCommitting},
      {kCommitting, {With(kCommitted), With(kCommitSent)}, "", kCommitting},
      {kCommitting, {With(kCommitted), prepared_away}, "", kCommitting},
      {kCommitting, {none, With(kPrepared)}, "commit 1, fail STALE_EPOCH w0", kCommitting},
      {kCommitting, {With(kPrepareSent), none}, "fail STALE_EPOCH w0 w1", kCommitting},
      {kCommitting, {With(kCommitted), lost}, "fail WORKER_LOST w1 at once", kCommitting},
      {kCommitting, {With(kCommitted), With(kCommitted)}, "write", kMarking},
      {kMarking, {With(kCommitted), lost}, "write", kMarking},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    EpochChange change = InPhase(rows[i].phase);
    EXPECT_EQ(TextOf(change.Advance(rows[i].workers, now_)), rows[i].step);
    EXPECT_EQ(change.phase(), rows[i].next);
  }
}

TEST_F(EpochChangeTest, SilenceFailsNamingTheSilent) {
  for (const ChangePhase phase : {ChangePhase::kPreparing, ChangePhase::kCommitting}) {
    EpochChange change = InPhase(phase);
    const HoldState done =
        phase == ChangePhase::kPreparing ? HoldState::kPrepared : HoldState::kCommitted;
    const std::vector workers{With(done), With(HoldState::kPrepared)};
    std::vector silent = workers;
    if (phase == ChangePhase::kPreparing) silent[1] = With(HoldState::kPrepareSent);

    EXPECT_FALSE(change.Advance(silent, now_ + seconds(9)).failure);
    const ChangeStep late = change.Advance(silent, now_ + seconds(10));

    EXPECT_EQ(TextOf(late), "fail NOT_READY w1");
    EXPECT_THAT(late.failure->why,
                FailsWith(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady));
  }
}

TEST_F(EpochChangeTest, WritesTheNumberThenThePlanThenTheMark) {
  EXPECT_EQ(std::get<ReserveEpoch>(InPhase(ChangePhase::kReserving).WriteToSend()).epoch, Epoch{3});
  const CommitPlan plan = std::get<CommitPlan>(InPhase(ChangePhase::kStoring).WriteToSend());
  EXPECT_EQ(plan.hash, update_->hash);
  EXPECT_EQ(plan.plan, CanonicalBytes(update_->plan));
  EXPECT_EQ(std::get<MarkServing>(InPhase(ChangePhase::kMarking).WriteToSend()).epoch, Epoch{3});
}

TEST_F(EpochChangeTest, KnowsItsWriteOnce) {
  EpochChange change = InPhase(ChangePhase::kReserving);
  change.OnWriteSent(WriteId{8});

  EXPECT_FALSE(change.OnWriteDone(WriteId{7}));
  EXPECT_TRUE(change.OnWriteDone(WriteId{8}));
  EXPECT_FALSE(change.OnWriteDone(WriteId{8}));
}

TEST_F(EpochChangeTest, WritesAFailedMarkAgainWhenItIsDue) {
  EpochChange change = InPhase(ChangePhase::kMarking);
  change.OnWriteSent(WriteId{8});
  EXPECT_FALSE(change.Advance({}, now_).write) << "one is in progress";
  ASSERT_TRUE(change.OnWriteDone(WriteId{8}));
  change.RetryMarkAt(now_ + seconds(2));

  EXPECT_FALSE(change.Advance({}, now_ + seconds(1)).write);
  EXPECT_TRUE(change.Advance({}, now_ + seconds(2)).write);
}

TEST_F(EpochChangeTest, AcceptsAnswersOfThisAttemptAndNoOthers) {
  const EpochChange preparing = InPhase(ChangePhase::kPreparing);
  const EpochChange committing = InPhase(ChangePhase::kCommitting);
  const PlanHash other = Sha256("another plan");
  const PrepareAck ack{"demo", Epoch{3}, kNonce, update_->hash};

  EXPECT_TRUE(preparing.Accepts("w0", LifeOf(1), ack));
  EXPECT_FALSE(preparing.Accepts("w0", LifeOf(2), ack)) << "another life";
  EXPECT_FALSE(preparing.Accepts("w2", LifeOf(1), ack)) << "not in the plan";
  EXPECT_FALSE(preparing.Accepts("w0", LifeOf(1), {"demo", Epoch{2}, kNonce, update_->hash}));
  EXPECT_FALSE(preparing.Accepts("w0", LifeOf(1), {"demo", Epoch{3}, kNonce + 1, update_->hash}));
  EXPECT_FALSE(preparing.Accepts("w0", LifeOf(1), {"demo", Epoch{3}, kNonce, other}));
  EXPECT_FALSE(committing.Accepts("w0", LifeOf(1), ack)) << "too late";
  EXPECT_FALSE(InPhase(ChangePhase::kReserving).Accepts("w0", LifeOf(1), ack));

  const CommitAck committed{"demo", Epoch{3}, update_->hash};
  EXPECT_TRUE(committing.Accepts("w1", LifeOf(2), committed));
  EXPECT_FALSE(committing.Accepts("w1", LifeOf(1), committed));
  EXPECT_FALSE(committing.Accepts("w1", LifeOf(2), {"demo", Epoch{3}, other}));
  EXPECT_FALSE(preparing.Accepts("w1", LifeOf(2), committed));
}

TEST_F(EpochChangeTest, TheFirstRefusalFailsTheChangeAndEveryRefuserWithRoomIsACulprit) {
  const absl::Status first = MakeError(absl::StatusCode::kDataLoss, Reason::kWeightHash, "first");
  const absl::Status second =
      MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "second");
  EpochChange change = InPhase(ChangePhase::kPreparing);
  EXPECT_FALSE(change.OnPrepareNack("w0", LifeOf(1), {"demo", Epoch{3}, kNonce + 1, first}));
  EXPECT_FALSE(change.OnPrepareNack("w0", LifeOf(2), {"demo", Epoch{3}, kNonce, first}));

  EXPECT_TRUE(change.OnPrepareNack("w1", LifeOf(2), {"demo", Epoch{3}, kNonce, first}));
  EXPECT_TRUE(change.OnPrepareNack("w0", LifeOf(1), {"demo", Epoch{3}, kNonce, second}));

  const ChangeStep step = change.Advance(std::vector(2, With(HoldState::kPrepared)), now_);
  EXPECT_EQ(TextOf(step), "fail WEIGHT_HASH w1");
  EXPECT_EQ(MetadataOf(step.failure->why).at("worker"), "w1");

  EpochChange committing = InPhase(ChangePhase::kCommitting);
  EXPECT_FALSE(committing.OnCommitNack("w1", LifeOf(2), {"demo", Epoch{2}, second}));
  EXPECT_TRUE(committing.OnCommitNack("w1", LifeOf(2), {"demo", Epoch{3}, second}));
  EXPECT_EQ(TextOf(committing.Advance(std::vector(2, With(HoldState::kCommitted)), now_)),
            "fail OUT_OF_MEMORY");
}

TEST_F(EpochChangeTest, PreparesWithTheRecordThatItsPlanWasMadeFrom) {
  const Prepare prepare = InPhase(ChangePhase::kPreparing).PrepareFor(WorkerOrdinal{1});

  EXPECT_EQ(prepare.nonce, kNonce);
  EXPECT_EQ(prepare.hash, update_->hash);
  EXPECT_EQ(prepare.checkpoint, record_->spec.checkpoint);
  EXPECT_FALSE(prepare.tensors.empty());
  EXPECT_EQ(prepare.grant_keys, keys_);
}

TEST_F(EpochChangeTest, ResumesAtCommitAfterARestart) {
  EpochChange change = EpochChange::Resume(update_, now_ + seconds(30));

  EXPECT_EQ(change.phase(), ChangePhase::kCommitting);
  EXPECT_EQ(change.epoch(), Epoch{3});
  const WorkerStanding away{.connected = false, .lost = false, .hold = {}, .has_room = false};
  EXPECT_EQ(TextOf(change.Advance(std::vector{away, With(HoldState::kPrepared)}, now_)),
            "commit 1");
}

// The change may have been given up before the restart, and its workers told to drop it.
TEST_F(EpochChangeTest, NobodyIsToBlameForAResumedChangeThatAWorkerDoesNotHold) {
  EpochChange change = EpochChange::Resume(update_, now_ + seconds(30));

  const ChangeStep step =
      change.Advance(std::vector{With(HoldState::kPrepared), With(std::nullopt)}, now_);

  EXPECT_EQ(TextOf(step), "commit 0, fail STALE_EPOCH");
}

TEST_F(EpochChangeTest, AWorkerThatWasNeverAskedIsNotToBlameForSilence) {
  EpochChange change = InPhase(ChangePhase::kPreparing);
  const WorkerStanding full{.connected = true, .lost = false, .hold = {}, .has_room = false};

  const ChangeStep late =
      change.Advance(std::vector{With(HoldState::kPrepareSent), full}, now_ + seconds(10));

  EXPECT_EQ(TextOf(late), "fail NOT_READY w0");
}

TEST_F(EpochChangeTest, DescribesWhatItWaitsFor) {
  EXPECT_EQ(InPhase(ChangePhase::kReserving).Describe(), "reserving the number of epoch 3");
  EpochChange change = InPhase(ChangePhase::kPreparing);
  change.Advance(std::vector{With(HoldState::kPrepared), With(HoldState::kPrepareSent)}, now_);
  EXPECT_EQ(change.Describe(), "preparing epoch 3 (2 of 64 experts move): waiting for w1");
  EXPECT_EQ(InPhase(ChangePhase::kStoring).Describe(), "storing epoch 3");
  EXPECT_EQ(InPhase(ChangePhase::kCommitting).Describe(), "committing epoch 3: waiting for w0, w1");
  EXPECT_EQ(InPhase(ChangePhase::kMarking).Describe(), "storing that epoch 3 serves");
}

}  // namespace
}  // namespace switchyard
