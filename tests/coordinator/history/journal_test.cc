// The journal by itself, and what a coordinator writes into it.
#include "coordinator/history/journal.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using testing::MakeSpec;

JournalEntry On(const std::string& name, const std::string& message) {
  JournalEntry entry;
  entry.name = name;
  entry.reason = "Reason";
  entry.message = message;
  return entry;
}
WallTime At(int s) { return WallTime(seconds(s)); }

TEST(JournalTest, KeepsTheNewestInOrder) {
  Journal journal(3);
  for (int i = 1; i <= 5; ++i) journal.Add(On("d", absl::StrCat("m", i)), At(i));

  std::vector<std::string> messages;
  for (const JournalEntry& one : journal.After(0)) messages.push_back(one.message);
  EXPECT_THAT(messages, ElementsAre("m3", "m4", "m5"));
  ASSERT_EQ(journal.After(4).size(), 1U);
  EXPECT_EQ(journal.After(4)[0].number, 5U);
  EXPECT_TRUE(journal.After(5).empty());
  EXPECT_TRUE(journal.After(500).empty());
}

TEST(JournalTest, ARepetitionIsTheNewestAndCounts) {
  Journal journal(3);
  journal.Add(On("d", "waits"), At(1));
  journal.Add(On("e", "waits"), At(2));
  for (int i = 3; i < 100; ++i) journal.Add(On("d", "waits"), At(i));

  const std::vector<JournalEntry> all = journal.After(0);

  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "e");
  EXPECT_EQ(all[1].count, 98);
  EXPECT_EQ(all[1].first, At(1));
  EXPECT_EQ(all[1].last, At(99));
  EXPECT_EQ(all[1].number, 99U) << "one who follows sees it again";
}

TEST(JournalTest, ShortensLongMessagesBetweenCharacters) {
  Journal journal(3);
  std::string umlauts = "x";
  for (int i = 0; i < 5000; ++i) umlauts += "\u00e4";  // two bytes each
  journal.Add(On("d", umlauts), At(1));

  const std::string kept = journal.After(0)[0].message;

  EXPECT_EQ(kept, umlauts.substr(0, 1023) + "...");
}

class CoordinatorJournalTest : public ::testing::Test {
 protected:
  // "demo Applied", "w0 Joined".
  std::vector<std::string> Said() {
    std::vector<std::string> all;
    for (const JournalEntry& one : cluster.Journal()) {
      all.push_back(absl::StrCat(one.name, " ", one.reason));
    }
    return all;
  }
  JournalEntry Last(const std::string& reason) {
    JournalEntry last;
    for (const JournalEntry& one : cluster.Journal()) {
      if (one.reason == reason) last = one;
    }
    return last;
  }

  Cluster cluster;
};

TEST_F(CoordinatorJournalTest, TellsTheLifeOfADeploymentAndItsWorkers) {
  cluster.Join("w0");
  SY_ASSERT_OK(cluster.Apply(MakeSpec(1)));
  ASSERT_EQ(cluster.Serving(), 1U);
  EXPECT_THAT(Said(),
              ElementsAre("w0 Joined", "demo Applied", "demo EpochPreparing", "demo EpochServing"));
  EXPECT_EQ(Last("EpochServing").message, "epoch 1 serves on 1 worker");
  EXPECT_EQ(Last("EpochServing").last, cluster.wall_time);

  cluster.Join("w1");
  cluster.Advance(seconds(1));
  EXPECT_THAT(Last("EpochPreparing").message, HasSubstr("epoch 2 is prepared on 2 workers; "))
      << "and why";
  SY_ASSERT_OK(cluster.SetDuty("w1", WorkerDuty::kDraining));
  cluster.Advance(seconds(1));
  SY_ASSERT_OK(cluster.SetDuty("w1", WorkerDuty::kServe));
  SY_ASSERT_OK(cluster.SetDuty("w1", WorkerDuty::kCordoned));
  cluster.BreakStream("w1");
  cluster.Advance(seconds(3));
  DeploymentSpec other = MakeSpec(1);
  other.max_tokens_per_step = 64;
  SY_ASSERT_OK(cluster.Apply(other));
  SY_ASSERT_OK(cluster.Rollback());
  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(milliseconds(50));

  EXPECT_THAT(Said(),
              IsSupersetOf({"w1 Draining", "w1 Uncordoned", "w1 Cordoned", "w1 StreamEnded",
                            "w1 Left", "demo RolledBack", "demo Deleting", "demo Deleted"}));
  EXPECT_EQ(Last("Left").level, LogLevel::kWarn);
}

TEST_F(CoordinatorJournalTest, SaysWhyThereIsNoPlanAndWhyAnEpochWasGivenUp) {
  FakeWorker& worker = cluster.Join("w0", /*weight_bytes_max=*/1);
  SY_ASSERT_OK(cluster.Apply(MakeSpec(1)));
  EXPECT_THAT(Said(), Contains("demo NoPlan"));
  worker.capabilities.weight_bytes_max = 0;
  worker.prepares = Answers::kNack;
  cluster.Restart("w0");
  cluster.Advance(seconds(1));

  EXPECT_THAT(Said(), Contains("demo EpochGivenUp"));
}

TEST_F(CoordinatorJournalTest, IsBounded) {
  for (int i = 0; i < 3000; ++i) {
    const std::string id = absl::StrCat("w", i);
    cluster.Join(id);
    cluster.BreakStream(id);
  }

  EXPECT_EQ(cluster.Journal().size(), CoordinatorOptions().journal_entries);
}

}  // namespace
}  // namespace switchyard
