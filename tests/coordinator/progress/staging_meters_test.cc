#include "coordinator/progress/staging_meters.h"

#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::seconds;

StagingReport Report(std::uint64_t epoch, std::int32_t done, std::int32_t experts = 4) {
  return {"demo", Epoch{epoch}, done, experts, done * 100, experts * 100};
}

constexpr TimePoint kStart{seconds(50)};

TEST(StagingMetersTest, KeepsTheLastReportOfEachEpochWithItsRate) {
  StagingMeters meters;
  meters.Update({Report(2, 4), Report(3, 0)}, kStart);
  meters.Update({Report(2, 4), Report(3, 2)}, kStart + seconds(1));

  ASSERT_NE(meters.Find({"demo", Epoch{3}}), nullptr);
  EXPECT_EQ(meters.Find({"demo", Epoch{3}})->report, Report(3, 2));
  EXPECT_EQ(meters.Find({"demo", Epoch{3}})->bytes.PerSecond(kStart + seconds(1)), 200);
  EXPECT_EQ(meters.Loading(), meters.Find({"demo", Epoch{3}}));
  EXPECT_EQ(meters.Find({"other", Epoch{3}}), nullptr);
}

TEST(StagingMetersTest, ForgetsWhatIsNotNamedAnyMore) {
  StagingMeters meters;
  meters.Update({Report(2, 1)}, kStart);
  meters.Update({}, kStart + seconds(1));

  EXPECT_TRUE(meters.all().empty());
  EXPECT_EQ(meters.Loading(), nullptr);
  meters.Update({Report(2, 2)}, kStart + seconds(2));
  EXPECT_EQ(meters.all()[0].bytes.PerSecond(kStart + seconds(2)), 0) << "another attempt";
}

TEST(StagingMetersTest, AnEpochWithNothingToLoadIsComplete) {
  StagingMeters meters;
  meters.Update({Report(2, 0, 0)}, kStart);

  EXPECT_TRUE(meters.all()[0].complete());
  EXPECT_EQ(meters.Loading(), nullptr);
}

TEST(StagingMetersTest, RemembersNoMoreThanAnHonestWorkerSays) {
  StagingMeters meters;
  std::vector<StagingReport> reports;
  for (std::uint64_t epoch = 0; epoch < 1000; ++epoch) reports.push_back(Report(epoch, 1));
  meters.Update(reports, kStart);
  EXPECT_EQ(meters.all().size(), kStagingReportsMax);

  StagingReport long_name = Report(1, 1);
  long_name.deployment = std::string(1000, 'x');
  StagingReport backwards = Report(2, 1);
  backwards.bytes_done = -1;
  StagingReport too_much = Report(4, 1);
  too_much.bytes_done = too_much.bytes + 1;
  meters.Update({long_name, backwards, Report(3, 5), too_much, Report(5, 1)}, kStart);
  ASSERT_EQ(meters.all().size(), 1U);
  EXPECT_EQ(meters.all()[0].report, Report(5, 1));
}

}  // namespace
}  // namespace switchyard
