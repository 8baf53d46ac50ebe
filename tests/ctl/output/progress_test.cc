#include "ctl/output/progress.h"

#include "gtest/gtest.h"

#include "core/base/amount_text.h"
#include "tests/ctl/messages.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::StagingMessage;

// One loads, one stands still, one has not begun, one is away and one has all.
v1::Deployment Changing() {
  v1::Deployment out;
  *out.add_staging() = StagingMessage("w1");
  v1::Staging& stands = *out.add_staging();
  stands = StagingMessage("w2");
  stands.set_bytes_per_second(0);
  stands.clear_left();
  stands.mutable_still()->set_seconds(130);
  v1::Staging& asked = *out.add_staging();
  asked.set_worker("w3");
  asked.set_step(v1::STAGING_STEP_ASKED);
  asked.set_waits_for("it loads epoch 1 of other first");
  v1::Staging& away = *out.add_staging();
  away.set_worker("w4");
  away.set_step(v1::STAGING_STEP_WAITING);
  away.set_waits_for("disconnected");
  v1::Staging& done = *out.add_staging();
  done = StagingMessage("w10");
  done.set_step(v1::STAGING_STEP_PREPARED);
  done.mutable_progress()->set_experts_done(48);
  done.mutable_progress()->set_bytes_done(std::uint64_t{48} << 25);
  return out;
}

TEST(CtlProgressTest, ShowsEachWorkerOfAChange) {
  EXPECT_EQ(StagingByWorker(Changing().staging()),
            R"(WORKER  STEP      EXPERTS   LOADED          RATE         LEFT  NOTE
w1      loading   34 of 48  1.0 of 1.5 GiB  412.0 MiB/s  2 s   -
w2      loading   34 of 48  1.0 of 1.5 GiB  -            -     nothing for 3 min
w3      asked     -         -               -            -     it loads epoch 1 of other first
w4      waiting   -         -               -            -     disconnected
w10     prepared  48 of 48  1.5 of 1.5 GiB  -            -     -
)");
}

TEST(CtlProgressTest, ShowsEachEpochOfAWorker) {
  v1::Worker worker;
  *worker.add_staging() = StagingMessage("w1");

  EXPECT_EQ(StagingByEpoch(worker.staging()),
            R"(PREPARES  EPOCH  STEP     EXPERTS   LOADED          RATE         LEFT  NOTE
local     4      loading  34 of 48  1.0 of 1.5 GiB  412.0 MiB/s  2 s   -
)");
}

TEST(CtlProgressTest, ShowsNothingWhereNothingChanges) {
  EXPECT_EQ(StagingByWorker({}), "");
  EXPECT_EQ(StagingByEpoch({}), "");
}

TEST(CtlProgressTest, AWaitSumsWhatWorkersLoad) {
  v1::Deployment changing = Changing();
  changing.mutable_spec()->set_name("local");
  const auto facts = ProgressOf(changing);

  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->what, "local: loading on 2 workers");
  EXPECT_EQ(ShareText(facts->bytes_done, facts->bytes), "3.6 of 4.5 GiB");
  EXPECT_EQ(facts->bytes_per_second, 412 << 20);
  EXPECT_EQ(TimeText(*facts->left), "2 s");
  EXPECT_FALSE(ProgressOf(v1::Deployment()).has_value());
}

TEST(CtlProgressTest, AWaitShowsTheCheckpointThatIsRead) {
  v1::Deployment reads;
  reads.mutable_spec()->set_name("local");
  v1::CheckpointReading& reading = *reads.mutable_reading();
  reading.set_checkpoint("/models/b");
  EXPECT_FALSE(ProgressOf(reads).has_value()) << "it has not begun";
  reading.set_bytes_done(5);
  reading.set_bytes(9);

  const auto facts = ProgressOf(reads);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->what, "local: reading /models/b");
  EXPECT_EQ(facts->bytes_done, 5);
  EXPECT_EQ(facts->bytes, 9);
  reading.set_dry_run(true);
  EXPECT_FALSE(ProgressOf(reads).has_value()) << "nobody waits for it";
}

TEST(CtlProgressTest, SaysHowFarACheckpointIsRead) {
  v1::CheckpointReading reading;
  reading.set_checkpoint("/models/b");
  EXPECT_EQ(ReadingText(reading), "/models/b: not begun");
  reading.set_bytes_done(std::uint64_t{12} << 30);
  reading.set_bytes(std::uint64_t{45} << 30);
  reading.set_bytes_per_second(std::uint64_t{11} << 27);
  reading.mutable_left()->set_seconds(24);
  EXPECT_EQ(ReadingText(reading), "/models/b: 12.0 of 45.0 GiB, 1.3 GiB/s, 24 s left");
  reading.clear_left();
  reading.mutable_still()->set_seconds(7);
  reading.set_dry_run(true);
  EXPECT_EQ(ReadingText(reading), "/models/b: 12.0 of 45.0 GiB, nothing for 7 s (dry run)");
}

}  // namespace
}  // namespace switchyard::ctl
