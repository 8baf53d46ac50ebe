// A deployment is applied again with another wish while a session runs: its rows change their dtype
// between two steps, and the rings grow before the wider rows come.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "harness/in_process_deployment.h"
#include "tests/e2e/golden_step.h"
#include "tests/e2e/served_golden.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::GoldenStep;
using testing::RunGoldenStep;
using testing::ServedGolden;

constexpr std::int32_t kTokens = 6;
constexpr LayerId kLayer{0};

class ReresolveTest : public ::testing::Test {
 protected:
  // Serves that golden to a session of `mode`, its rows in FP8 at first.
  void Start(const std::string& golden, DispatchMode mode, bool over_ucx = false) {
    model_ = std::make_unique<ServedGolden>(golden);
    mode_ = mode;
    InProcessOptions options;
    options.checkpoint = model_->path();
    options.workers = 2;
    options.mode = mode;
    options.over_ucx = over_ucx;
    options.dispatcher_output_dtype = DtypeChoice::kFp8;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
    OpenSessionRequest order;
    order.mode = mode;
    SY_ASSERT_OK_AND_ASSIGN(session_, client_->OpenWhenReady(order, std::chrono::seconds(20)));
  }
  // Applies the deployment with that wish and waits for the session to follow.
  void ApplyAndFollow(DtypeChoice choice, std::uint64_t epoch) {
    DeploymentSpec spec;
    spec.name = "local";
    spec.checkpoint = model_->path();
    spec.min_workers = 2;
    spec.dispatcher_output_dtype = choice;
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
      spec.phases.push_back({phase, mode_});
    }
    SY_ASSERT_OK(deployment_->Apply(spec));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Status().epoch.value < epoch && std::chrono::steady_clock::now() < until) Answer();
    ASSERT_EQ(Status().epoch.value, epoch);
  }
  RunnerStatus Status() {
    const auto report = session_->Report(std::chrono::seconds(5));
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->status : RunnerStatus{};
  }
  // One answer of the layer for the same rows.
  std::vector<float> Answer() {
    GoldenStep step(*model_, kTokens, 1);
    SY_EXPECT_OK(RunGoldenStep(*session_, step, kLayer));
    return step.y;
  }
  // Bytes of rows and scales that each row of another answer brings to the workers.
  std::uint64_t BytesOfARow() {
    const auto [rows_before, bytes_before] = Counted();
    Answer();
    const auto [rows, bytes] = Counted();
    EXPECT_GT(rows, rows_before) << "counts go on";
    return rows == rows_before ? 0 : (bytes - bytes_before) / (rows - rows_before);
  }
  // Rows of the session so far, and their bytes.
  std::pair<std::uint64_t, std::uint64_t> Counted() {
    const auto report = session_->Report(std::chrono::seconds(5));
    EXPECT_TRUE(report.ok()) << report.status();
    std::pair<std::uint64_t, std::uint64_t> sum;
    for (const SessionCounters& worker : report->workers) {
      for (const AttachmentCounters& attachment : worker.attachments) {
        sum.first += attachment.rows;
        sum.second += attachment.request_payload_bytes;
      }
    }
    return sum;
  }

  std::unique_ptr<ServedGolden> model_;
  DispatchMode mode_ = DispatchMode::kNormal;
  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<MoeSession> session_;
};

class ReresolveModesTest : public ReresolveTest,
                           public ::testing::WithParamInterface<std::pair<DispatchMode, bool>> {};

// R18, R35: the next step after the switch has the new dtype, on rings that hold it. Experts in FP8
// quantize BF16 rows just so, and the answers are the same bit for bit.
TEST_P(ReresolveModesTest, RingsGrowBeforeWiderRowsComeAndKeepTheirSizeForNarrowerOnes) {
  Start("fp8_block", GetParam().first, GetParam().second);
  const auto row_bytes = [this](DispatchDtype dtype) {
    return static_cast<std::uint64_t>(RowBytesOf(dtype, model_->hidden()).total());
  };
  const std::vector<float> answer = Answer();
  const std::vector<AttachmentStatus> before = Status().attachments;
  EXPECT_EQ(BytesOfARow(), row_bytes(DispatchDtype::kFp8));

  ApplyAndFollow(DtypeChoice::kBf16, 2);
  EXPECT_EQ(Answer(), answer);
  EXPECT_EQ(BytesOfARow(), row_bytes(DispatchDtype::kBf16));
  const std::vector<AttachmentStatus> grown = Status().attachments;
  ASSERT_EQ(grown.size(), before.size()) << "the small rings are gone";
  for (std::size_t i = 0; i < grown.size(); ++i) {
    EXPECT_GT(grown[i].slot_bytes.dispatch, before[i].slot_bytes.dispatch);
    EXPECT_EQ(grown[i].slot_bytes.combine, before[i].slot_bytes.combine) << "results are BF16";
  }

  ApplyAndFollow(DtypeChoice::kFp8, 3);
  EXPECT_EQ(Answer(), answer);
  EXPECT_EQ(Status().attachments.at(0).slot_bytes, grown.at(0).slot_bytes);
}

INSTANTIATE_TEST_SUITE_P(Modes, ReresolveModesTest,
                         ::testing::Values(std::pair(DispatchMode::kNormal, false),
                                           std::pair(DispatchMode::kLowLatency, false),
                                           std::pair(DispatchMode::kNormal, true),
                                           std::pair(DispatchMode::kLowLatency, true)),
                         [](const auto& instance) {
                           const bool over_ucx = instance.param.second;
                           return absl::StrCat(DispatchModeName(instance.param.first),
                                               over_ucx ? "_ucx" : "");
                         });

// R20, R35: no step fails or mixes dtypes while the deployment goes to and fro under it. Experts of
// W4AFP8 have one scale for all their inputs, so FP8 rows are another answer than BF16 rows.
TEST_F(ReresolveTest, StepsInFlightAreOfOneEpochAndNoneIsLost) {
  Start("w4afp8", DispatchMode::kLowLatency);
  const std::vector<float> as_fp8 = Answer();
  std::atomic<bool> stop{false};
  std::atomic<int> steps{0};
  std::optional<std::vector<float>> as_bf16;
  std::thread traffic([&] {
    while (!stop) {
      const std::vector<float> y = Answer();
      ++steps;
      if (y == as_fp8) continue;
      if (!as_bf16) as_bf16 = y;
      EXPECT_EQ(y, *as_bf16) << "neither the answer of FP8 rows nor that of BF16 rows";
    }
  });
  for (std::uint64_t epoch = 2; epoch <= 7; ++epoch) {
    ApplyAndFollow(epoch % 2 == 0 ? DtypeChoice::kBf16 : DtypeChoice::kFp8, epoch);
    const int before = steps;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (steps < before + 2 && std::chrono::steady_clock::now() < until) Status();
  }
  stop = true;
  traffic.join();

  EXPECT_GT(steps, 12);
  EXPECT_TRUE(as_bf16.has_value()) << "no step ran with BF16 rows";
}

}  // namespace
}  // namespace switchyard
