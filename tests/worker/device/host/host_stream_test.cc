#include "worker/device/host/host_stream.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

#include "tests/testing/fake_device.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FakeDevice;
using testing::FakeExpert;
using testing::RandomExpert;

constexpr MoeShape kShape{.hidden = 8, .intermediate = 4, .experts = 2, .top_k = 2};
constexpr InlineLimits kNothingInline{.weight_bytes = 0, .flops = 0};
constexpr Duration kLong = std::chrono::seconds(20);

// A gate that kernels wait at.
class Gate {
 public:
  void Open() { open_.store(true); }
  void Pass() {
    passed_.fetch_add(1);
    while (!open_.load()) std::this_thread::yield();
  }
  void AwaitPassing(int count) const {
    while (passed_.load() < count) std::this_thread::yield();
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<int> passed_{0};
};

class HostStreamTest : public ::testing::Test {
 protected:
  explicit HostStreamTest(InlineLimits limits = kNothingInline) : device_(limits) {
    for (std::int32_t e = 0; e < kShape.experts; ++e) {
      const RandomExpert raw(kShape, static_cast<std::uint64_t>(e) + 1);
      entries_.push_back({ExpertId{e}, std::make_shared<const FakeExpert>(kShape, raw.view())});
    }
    table_ = *device_.MakeTable(entries_);
    SeededRng rng(3);
    x_ = testing::GaussianBf16(3 * 8, 1.0, rng);
  }

  // Three rows, for experts 0, 1 and 0.
  struct Work {
    std::unique_ptr<Workspace> workspace;
    std::vector<std::int32_t> slots{0, 1, 0};
    std::vector<Bf16> out = std::vector<Bf16>(3 * 8, 0x7fa5);
    ExpertInput input;
    ExpertRun run;
  };
  std::unique_ptr<Work> MakeWork(std::int64_t pairs_max = 16) {
    auto work = std::make_unique<Work>();
    work->workspace = *device_.MakeWorkspace(kShape, pairs_max);
    work->input = {.rows = reinterpret_cast<const std::byte*>(x_.data()),
                   .count = 3,
                   .slots = work->slots.data(),
                   .out = work->out.data()};
    work->run = {
        .experts = table_.get(), .workspace = work->workspace.get(), .inputs = {&work->input, 1}};
    return work;
  }
  [[nodiscard]] std::vector<Bf16> Expected() const {
    std::vector<Bf16> rows;
    std::vector<float> h(4);
    std::vector<float> y(8);
    for (std::size_t r = 0; r < 3; ++r) {
      const auto& expert = static_cast<const FakeExpert&>(*entries_[r == 1 ? 1 : 0].weights);
      FakeDevice::RunRow(expert, x_.data() + r * 8, h, y.data());
      for (const float value : y) rows.push_back(FloatToBf16(value));
    }
    return rows;
  }

  FakeDevice device_;
  std::vector<TableEntry> entries_;
  std::unique_ptr<ExpertTable> table_;
  std::vector<Bf16> x_;
};

TEST_F(HostStreamTest, AQueuedRunLeavesItsCallerFreeAndReportsItsEnd) {
  Gate gate;
  device_.on_run = [&] { gate.Pass(); };
  std::atomic<int> progress{0};
  const auto stream =
      *device_.MakeStream({.work_class = WorkClass::kPrefill, .on_progress = [&] { ++progress; }});
  const auto event = stream->MakeEvent();
  const auto work = MakeWork();
  EXPECT_TRUE(event->done());

  SY_ASSERT_OK(stream->Run(work->run));
  SY_ASSERT_OK(stream->Record(event.get()));

  EXPECT_FALSE(event->done());
  EXPECT_FALSE(event->Wait(std::chrono::milliseconds(1)));
  gate.Open();
  ASSERT_TRUE(event->Wait(kLong));
  SY_EXPECT_OK(event->status());
  EXPECT_EQ(work->out, Expected());
  while (progress.load() == 0) std::this_thread::yield();
  EXPECT_EQ(progress.load(), 1);
}

TEST_F(HostStreamTest, WorkOfAStreamRunsInOrderBehindWhatIsQueued) {
  Gate gate;
  device_.on_run = [&] { gate.Pass(); };
  const auto stream = *device_.MakeStream({.work_class = WorkClass::kPrefill});
  const auto event = stream->MakeEvent();
  const auto work = MakeWork();
  std::vector<Bf16> copy(work->out.size());
  const CopyPiece piece{.to = reinterpret_cast<std::byte*>(copy.data()),
                        .from = reinterpret_cast<const std::byte*>(work->out.data()),
                        .bytes = copy.size() * sizeof(Bf16)};
  const std::vector<const Bf16*> terms{copy.data(), copy.data() + 8};
  const std::vector<std::uint32_t> begin{0, 2, 2};
  std::vector<float> sum(2 * 8, -1.0F);

  SY_ASSERT_OK(stream->Run(work->run));
  SY_ASSERT_OK(stream->Copy({&piece, 1}));
  SY_ASSERT_OK(stream->Sum({.terms = terms,
                            .weights = {},
                            .begin = begin,
                            .hidden = 8,
                            .y = sum.data(),
                            .y_stride = 8}));
  SY_ASSERT_OK(stream->Record(event.get()));
  EXPECT_EQ(copy[0], 0);
  gate.Open();

  ASSERT_TRUE(event->Wait(kLong));
  EXPECT_EQ(copy, Expected());
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(sum[i], Bf16ToFloat(copy[i]) + Bf16ToFloat(copy[8 + i]));
    EXPECT_EQ(sum[8 + i], 0.0F);  // A row without terms.
  }
}

// A decode run comes between two passes of a prefill run, and after it at the latest.
TEST_F(HostStreamTest, DecodeWorkRunsBetweenThePassesOfAPrefillRun) {
  std::atomic<int> runs{0};
  Gate gate;
  device_.on_run = [&] {
    if (runs.fetch_add(1) == 0) gate.Pass();
  };
  const auto prefill = *device_.MakeStream({.work_class = WorkClass::kPrefill});
  const auto decode = *device_.MakeStream({.work_class = WorkClass::kDecode});
  const auto prefill_done = prefill->MakeEvent();
  const auto decode_done = decode->MakeEvent();
  const auto large = MakeWork(2);  // Two passes: a workspace of two pairs.
  const auto small = MakeWork();
  std::atomic<int> decode_at{0};
  SY_ASSERT_OK(prefill->Run(large->run));
  SY_ASSERT_OK(prefill->Record(prefill_done.get()));
  gate.AwaitPassing(1);

  SY_ASSERT_OK(decode->Run(small->run));
  SY_ASSERT_OK(decode->Record(decode_done.get()));
  gate.Open();

  ASSERT_TRUE(decode_done->Wait(kLong));
  decode_at = runs.load();
  ASSERT_TRUE(prefill_done->Wait(kLong));
  EXPECT_EQ(runs.load(), 3);
  EXPECT_LE(decode_at.load(), 3);
  EXPECT_EQ(small->out, Expected());
  EXPECT_EQ(large->out, Expected());
}

// An expert that claims to be large, so that a pass may give way after each.
class LargeExpert final : public FakeExpert {
 public:
  using FakeExpert::FakeExpert;
  [[nodiscard]] std::int64_t bytes() const override { return std::int64_t{1} << 30; }
};

TEST_F(HostStreamTest, DecodeWorkRunsBetweenTheLargeExpertsOfAPass) {
  for (std::int32_t e = 0; e < kShape.experts; ++e) {
    const RandomExpert raw(kShape, static_cast<std::uint64_t>(e) + 1);
    entries_[static_cast<std::size_t>(e)].weights =
        std::make_shared<const LargeExpert>(kShape, raw.view());
  }
  table_ = *device_.MakeTable(entries_);
  const auto prefill = *device_.MakeStream({.work_class = WorkClass::kPrefill});
  const auto decode = *device_.MakeStream({.work_class = WorkClass::kDecode});
  const auto prefill_done = prefill->MakeEvent();
  const auto decode_done = decode->MakeEvent();
  std::atomic<int> runs{0};
  std::atomic<bool> decode_was_done{false};
  Gate gate;
  // An expert of prefill, then decode, and the other expert of prefill.
  device_.on_run = [&] {
    const int run = runs.fetch_add(1);
    if (run == 0) gate.Pass();
    if (run == 2) decode_was_done = decode_done->done();
  };
  const auto large = MakeWork();
  const auto small = MakeWork();
  SY_ASSERT_OK(prefill->Run(large->run));
  SY_ASSERT_OK(prefill->Record(prefill_done.get()));
  gate.AwaitPassing(1);
  SY_ASSERT_OK(decode->Run(small->run));
  SY_ASSERT_OK(decode->Record(decode_done.get()));
  gate.Open();

  ASSERT_TRUE(decode_done->Wait(kLong));
  ASSERT_TRUE(prefill_done->Wait(kLong));
  EXPECT_EQ(runs.load(), 3);
  EXPECT_TRUE(decode_was_done.load());
  EXPECT_EQ(small->out, Expected());
  EXPECT_EQ(large->out, Expected());
}

TEST_F(HostStreamTest, PrefillProgressesUnderADecodeLoadThatNeverEnds) {
  const auto prefill = *device_.MakeStream({.work_class = WorkClass::kPrefill});
  const auto decode = *device_.MakeStream({.work_class = WorkClass::kDecode});
  const auto prefill_done = prefill->MakeEvent();
  const auto decode_done = decode->MakeEvent();
  const auto large = MakeWork();
  const auto small = MakeWork();
  // The decode queue is never empty until prefill is done.
  for (int i = 0; i < 40; ++i) SY_ASSERT_OK(decode->Run(small->run));
  SY_ASSERT_OK(prefill->Run(large->run));
  SY_ASSERT_OK(prefill->Record(prefill_done.get()));
  for (int i = 0; i < 100'000 && !prefill_done->done(); ++i) {
    const absl::Status queued = decode->Run(small->run);
    if (!queued.ok()) {
      EXPECT_THAT(queued, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
      std::this_thread::yield();
    }
  }

  EXPECT_TRUE(prefill_done->Wait(kLong));
  SY_ASSERT_OK(decode->Record(decode_done.get()));
  EXPECT_TRUE(decode_done->Wait(kLong));
}

TEST_F(HostStreamTest, RefusesWhatItCannotRunAndMoreThanItsQueueTakes) {
  Gate gate;
  device_.on_run = [&] { gate.Pass(); };
  const auto stream = *device_.MakeStream({.work_class = WorkClass::kPrefill});
  const auto event = stream->MakeEvent();
  const auto work = MakeWork();
  ExpertRun run = work->run;
  run.width = 3;
  EXPECT_THAT(stream->Run(run), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  run.width = 2;
  EXPECT_THAT(stream->Run(run), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  run.combine = CombineUnit::kPerWorker;
  run.out_dtype = OutputDtype::kF32;
  EXPECT_THAT(stream->Run(run), FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_EQ(device_.runs, 0);

  EXPECT_EQ(stream->Room(), HostStream::kQueuedMax - 1);
  for (std::uint32_t i = 0; i + 1 < HostStream::kQueuedMax; ++i) {
    SY_ASSERT_OK(stream->Run(work->run));
  }
  EXPECT_EQ(stream->Room(), 0U);
  EXPECT_THAT(stream->Run(work->run),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  SY_EXPECT_OK(stream->Record(event.get()));  // An event always fits.
  const auto second = stream->MakeEvent();
  EXPECT_THAT(stream->Record(second.get()),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  EXPECT_TRUE(second->done()) << "nothing else would end a wait for it";
  gate.Open();
  EXPECT_TRUE(event->Wait(kLong));
}

TEST_F(HostStreamTest, DestroyingAStreamWaitsForItsWork) {
  const auto work = MakeWork();
  {
    const auto stream = *device_.MakeStream({.work_class = WorkClass::kPrefill});
    for (int i = 0; i < 20; ++i) SY_ASSERT_OK(stream->Run(work->run));
  }

  EXPECT_EQ(device_.runs, 20);
}

class SmallRunsTest : public HostStreamTest {
 protected:
  SmallRunsTest() : HostStreamTest(InlineLimits{}) {}
};

TEST_F(SmallRunsTest, AreDoneWhenTheCallReturns) {
  for (const WorkClass work_class : {WorkClass::kDecode, WorkClass::kPrefill}) {
    const auto stream = *device_.MakeStream({.work_class = work_class});
    const auto event = stream->MakeEvent();
    const auto work = MakeWork();

    SY_ASSERT_OK(stream->Run(work->run));
    SY_ASSERT_OK(stream->Record(event.get()));

    EXPECT_TRUE(event->done());
    EXPECT_EQ(work->out, Expected());
    EXPECT_EQ(work->input.nan_rows, 0U);
  }
}

TEST_F(SmallRunsTest, GivesRowsBeforeRoundingAndCountsNans) {
  x_[8] = 0x7fc1;  // In row 1.
  const auto stream = *device_.MakeStream({.work_class = WorkClass::kDecode});
  const auto work = MakeWork();
  std::vector<float> out(3 * 8, -1.0F);
  work->input.out = out.data();
  work->run.out_dtype = OutputDtype::kF32;

  SY_ASSERT_OK(stream->Run(work->run));

  EXPECT_EQ(work->input.nan_rows, 1U);
  const std::vector<Bf16> rounded = Expected();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i / 8 == 1) continue;
    EXPECT_EQ(FloatToBf16(out[i]), rounded[i]);
  }
}

}  // namespace
}  // namespace switchyard
