// Every StateStore in the registry, held to the contract of state_store.h.
#include "coordinator/store/state_store.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/store/registry.h"
#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::IsOk;

class StateStoreConformance : public ::testing::TestWithParam<StateStoreEntry> {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = absl::StrCat("sy_store_", getpid(), "_", test->name());
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = std::filesystem::path(::testing::TempDir()) / name;
    std::filesystem::create_directories(folder_);
    Reopen();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  // As a coordinator that ended and came back.
  void Reopen() {
    store_.reset();
    auto opened = GetParam().open((folder_ / "state.db").string());
    SY_ASSERT_OK(opened);
    store_ = std::move(opened).value();
  }
  // A store that keeps nothing over Reopen is checked without it.
  void ReopenIfDurable() {
    if (std::string(GetParam().scheme) != "memory") Reopen();
  }
  StoredDeployment Only() {
    auto state = store_->Load();
    EXPECT_THAT(state, IsOk());
    const std::vector<StoredDeployment>& all = state->deployments;
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? StoredDeployment{} : all.front();
  }
  static PlanHash HashFor(std::uint64_t seed) { return Sha256(absl::StrCat("plan ", seed)); }
  absl::Status Commit(std::uint64_t epoch, const std::string& plan = "plan") {
    return store_->Write(CommitPlan{"d", Epoch{epoch}, HashFor(epoch), plan});
  }
  absl::Status Reserve(std::uint64_t epoch) {
    return store_->Write(ReserveEpoch{"d", Epoch{epoch}});
  }
  absl::Status Serve(std::uint64_t epoch) { return store_->Write(MarkServing{"d", Epoch{epoch}}); }
  void Change(std::uint64_t epoch) {
    SY_ASSERT_OK(Reserve(epoch));
    SY_ASSERT_OK(Commit(epoch));
    SY_ASSERT_OK(Serve(epoch));
  }

  std::filesystem::path folder_;
  std::unique_ptr<StateStore> store_;
};

const auto kConflict = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStoreWrite);

TEST_P(StateStoreConformance, IsEmptyAtFirst) {
  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());
  EXPECT_TRUE(state.deployments.empty());
  EXPECT_EQ(state.deleted_high_water, Epoch{});
  EXPECT_TRUE(state.duties.empty());
}

TEST_P(StateStoreConformance, KeepsRecordsByName) {
  const std::string binary = std::string("\0\xff x\0", 5);

  SY_ASSERT_OK(store_->Write(PutDeployment{"b", "old"}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"a", "other"}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"b", binary}));
  ReopenIfDurable();

  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());
  const std::vector<StoredDeployment>& all = state.deployments;
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0], (StoredDeployment{"a", "other", {}, {}, {}}));
  EXPECT_EQ(all[1], (StoredDeployment{"b", binary, {}, {}, {}}));
}

TEST_P(StateStoreConformance, KeepsAWholeChange) {
  SeededRng rng(11);
  std::string plan(300'000, '\0');
  for (char& c : plan) c = static_cast<char>(rng.Next());
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));

  SY_ASSERT_OK(Reserve(4));
  SY_ASSERT_OK(Commit(4, plan));
  SY_ASSERT_OK(Serve(4));
  ReopenIfDurable();

  EXPECT_EQ(Only(),
            (StoredDeployment{"d", "record", Epoch{4}, Epoch{4}, {{Epoch{4}, HashFor(4), plan}}}));
}

TEST_P(StateStoreConformance, NewRecordKeepsEpochsAndPlans) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  Change(1);

  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record 2"}));
  ReopenIfDurable();

  EXPECT_EQ(Only().record, "record 2");
  EXPECT_EQ(Only().serving, Epoch{1});
  EXPECT_EQ(Only().plans.size(), 1U);
}

TEST_P(StateStoreConformance, RefusesWritesForUnknownDeployments) {
  EXPECT_THAT(Reserve(1), kConflict);
  EXPECT_THAT(Commit(1), kConflict);
  EXPECT_THAT(Serve(1), kConflict);
}

TEST_P(StateStoreConformance, GivesAnEpochOutOnce) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  SY_ASSERT_OK(Reserve(3));
  ReopenIfDurable();

  EXPECT_THAT(Reserve(3), kConflict);
  EXPECT_THAT(Reserve(2), kConflict);
  SY_EXPECT_OK(Reserve(4));
  EXPECT_EQ(Only().high_water, Epoch{4});
}

TEST_P(StateStoreConformance, CommitsOnlyTheEpochGivenOutLast) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  EXPECT_THAT(Commit(1), kConflict);
  SY_ASSERT_OK(Reserve(1));
  SY_ASSERT_OK(Reserve(2));

  EXPECT_THAT(Commit(1), kConflict);
  EXPECT_THAT(Commit(3), kConflict);
  SY_EXPECT_OK(Commit(2));
  EXPECT_THAT(Commit(2, "another plan"), kConflict);
  EXPECT_EQ(Only().plans, (std::vector<StoredPlan>{{Epoch{2}, HashFor(2), "plan"}}));
}

TEST_P(StateStoreConformance, ServesOnlyCommittedEpochs) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  SY_ASSERT_OK(Reserve(1));

  EXPECT_THAT(Serve(1), kConflict);
  SY_ASSERT_OK(Commit(1));
  SY_EXPECT_OK(Serve(1));
  SY_EXPECT_OK(Serve(1)) << "is idempotent";
}

TEST_P(StateStoreConformance, KeepsTheServingPlanTheOneBeforeAndLaterOnes) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  Change(1);
  Change(2);
  SY_ASSERT_OK(Reserve(3));
  SY_ASSERT_OK(Commit(3));  // committed, never served
  Change(4);
  SY_ASSERT_OK(Reserve(5));
  SY_ASSERT_OK(Commit(5));
  ReopenIfDurable();

  std::vector<std::uint64_t> kept;
  for (const StoredPlan& plan : Only().plans) kept.push_back(plan.epoch.value);
  EXPECT_EQ(kept, (std::vector<std::uint64_t>{2, 4, 5}));
  EXPECT_EQ(Only().serving, Epoch{4});
  EXPECT_EQ(Only().high_water, Epoch{5});
}

TEST_P(StateStoreConformance, RefusedWritesChangeNothing) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  Change(7);
  const StoredDeployment before = Only();

  EXPECT_THAT(Reserve(7), kConflict);
  EXPECT_THAT(Commit(9), kConflict);
  EXPECT_THAT(Serve(8), kConflict);

  EXPECT_EQ(Only(), before);
}

TEST_P(StateStoreConformance, DeploymentsDoNotMeet) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"c", "other"}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  Change(1);

  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());
  const std::vector<StoredDeployment>& all = state.deployments;
  EXPECT_EQ(all[0], (StoredDeployment{"c", "other", {}, {}, {}}));
  SY_EXPECT_OK(store_->Write(ReserveEpoch{"c", Epoch{1}}));
}

TEST_P(StateStoreConformance, ForgetsADeploymentButNotItsNumbers) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"other", "record"}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  Change(3);
  SY_ASSERT_OK(Reserve(7));

  SY_ASSERT_OK(store_->Write(DeleteDeployment{"d"}));
  SY_ASSERT_OK(store_->Write(DeleteDeployment{"d"})) << "again, as after an error";
  ReopenIfDurable();

  EXPECT_EQ(Only(), (StoredDeployment{"other", "record", {}, {}, {}}));
  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());
  EXPECT_EQ(state.deleted_high_water, Epoch{7});
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "anew"}));
  EXPECT_THAT(Reserve(7), kConflict);
  SY_EXPECT_OK(Reserve(8));
  SY_EXPECT_OK(store_->Write(ReserveEpoch{"other", Epoch{1}})) << "one that was there goes on";
}

TEST_P(StateStoreConformance, TheHighestNumberOfAllDeletedCounts) {
  for (const char* name : {"low", "high", "none"}) {
    SY_ASSERT_OK(store_->Write(PutDeployment{name, "record"}));
  }
  SY_ASSERT_OK(store_->Write(ReserveEpoch{"low", Epoch{4}}));
  SY_ASSERT_OK(store_->Write(ReserveEpoch{"high", Epoch{9}}));

  for (const char* name : {"low", "high", "none"}) {
    SY_ASSERT_OK(store_->Write(DeleteDeployment{name}));
  }
  ReopenIfDurable();

  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());
  EXPECT_EQ(state.deleted_high_water, Epoch{9});
}

TEST_P(StateStoreConformance, NothingOfADeletedDeploymentCanBeWritten) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "record"}));
  SY_ASSERT_OK(Reserve(1));
  SY_ASSERT_OK(store_->Write(DeleteDeployment{"d"}));

  EXPECT_THAT(Commit(1), kConflict);
  EXPECT_THAT(Reserve(2), kConflict);
}

NewRevision NewOf(std::uint64_t number, const std::string& checkpoint) {
  return {number, absl::StrCat("revision ", number), checkpoint};
}

TEST_P(StateStoreConformance, KeepsRevisionsAndEachCheckpointOnce) {
  const std::string large(100'000, 'c');
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "one", NewOf(1, large)}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "two", NewOf(2, large)}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"e", "one", NewOf(1, "other")}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "three", NewOf(3, "small")}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "marked"}));
  ReopenIfDurable();

  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());

  EXPECT_EQ(state.deployments[0].record, "marked");
  EXPECT_EQ(state.deployments[0].revisions,
            (std::vector<StoredRevision>{{1, {}, "revision 1", Sha256(large)},
                                         {2, {}, "revision 2", Sha256(large)},
                                         {3, {}, "revision 3", Sha256("small")}}));
  EXPECT_EQ(state.checkpoints,
            (std::map<Sha256Digest, std::string>{
                {Sha256(large), large}, {Sha256("small"), "small"}, {Sha256("other"), "other"}}));
}

TEST_P(StateStoreConformance, DropsRevisionsWithTheirCheckpoints) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "one", NewOf(1, "a")}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "two", NewOf(2, "b")}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"e", "one", NewOf(1, "b")}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "three", NewOf(3, "b"), {1, 2, 77}}));
  // Again, as after an error: the number is replaced.
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "three", NewOf(3, "c"), {1, 2}}));
  ReopenIfDurable();

  SY_ASSERT_OK_AND_ASSIGN(StoredState state, store_->Load());
  EXPECT_EQ(state.deployments[0].revisions,
            (std::vector<StoredRevision>{{3, {}, "revision 3", Sha256("c")}}));
  EXPECT_EQ(state.checkpoints,
            (std::map<Sha256Digest, std::string>{{Sha256("b"), "b"}, {Sha256("c"), "c"}}));

  SY_ASSERT_OK(store_->Write(DeleteDeployment{"d"}));
  SY_ASSERT_OK_AND_ASSIGN(state, store_->Load());
  EXPECT_EQ(state.checkpoints, (std::map<Sha256Digest, std::string>{{Sha256("b"), "b"}}));
  EXPECT_EQ(state.deployments[0].revisions.size(), 1U);
}

TEST_P(StateStoreConformance, RemembersWhichRevisionServed) {
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "one", NewOf(1, "a")}));
  SY_ASSERT_OK(Reserve(1));
  SY_ASSERT_OK(Commit(1));
  EXPECT_THAT(store_->Write(MarkServing{"d", Epoch{2}, 1}), kConflict);
  EXPECT_EQ(Only().revisions[0].served, Epoch{}) << "refused as a whole";
  SY_ASSERT_OK(store_->Write(MarkServing{"d", Epoch{1}, 1}));
  SY_ASSERT_OK(store_->Write(PutDeployment{"d", "two", NewOf(2, "a")}));
  // The same plan, and one that is not stored.
  SY_ASSERT_OK(store_->Write(MarkServing{"d", Epoch{1}, 2}));
  SY_ASSERT_OK(store_->Write(MarkServing{"d", Epoch{1}, 9}));
  ReopenIfDurable();

  EXPECT_EQ(Only().serving, Epoch{1});
  EXPECT_EQ(Only().revisions[0].served, Epoch{1});
  EXPECT_EQ(Only().revisions[1].served, Epoch{1});
}

TEST_P(StateStoreConformance, KeepsDutiesOfWorkers) {
  SY_ASSERT_OK(store_->Write(PutWorkerDuty{"w0", WorkerDuty::kCordoned}));
  SY_ASSERT_OK(store_->Write(PutWorkerDuty{"w1", WorkerDuty::kCordoned}));
  SY_ASSERT_OK(store_->Write(PutWorkerDuty{"w1", WorkerDuty::kDraining}));
  SY_ASSERT_OK(store_->Write(PutWorkerDuty{"w2", WorkerDuty::kDraining}));
  SY_ASSERT_OK(store_->Write(PutWorkerDuty{"w2", WorkerDuty::kServe}));
  ReopenIfDurable();

  SY_ASSERT_OK_AND_ASSIGN(const StoredState state, store_->Load());
  EXPECT_EQ(state.duties,
            (WorkerDuties{{"w0", WorkerDuty::kCordoned}, {"w1", WorkerDuty::kDraining}}));
}

INSTANTIATE_TEST_SUITE_P(All, StateStoreConformance, ::testing::ValuesIn(StateStores()),
                         [](const auto& each) { return std::string(each.param.scheme); });

}  // namespace
}  // namespace switchyard
