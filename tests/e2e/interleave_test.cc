// Models and a draft layer of different dtypes in one worker process, at the same time.
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gtest/gtest.h"

#include "harness/in_process_deployment.h"
#include "tests/e2e/golden_step.h"
#include "tests/e2e/served_golden.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::CountersOf;
using testing::GoldenStep;
using testing::RunGoldenStep;
using testing::ServedGolden;

constexpr std::int32_t kTokens = 6;
constexpr int kRounds = 500;  // of each thread

std::vector<std::string> Environment() {
  std::vector<std::string> lines;
  for (char** line = environ; *line != nullptr; ++line) lines.emplace_back(*line);
  return lines;
}

// One layer of one session, over and over; every answer must be the first one's.
void Repeat(MoeSession& session, GoldenStep step, LayerId layer, int rounds) {
  std::vector<float> first;
  for (int round = 0; round < rounds; ++round) {
    SY_ASSERT_OK(RunGoldenStep(session, step, layer)) << round;
    if (round == 0) first = step.y;
    ASSERT_EQ(step.y, first) << "layer " << layer.value << ", round " << round;
  }
}

class InterleaveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    InProcessOptions options;
    options.checkpoint = int8_.path();
    options.name = "int8";
    options.workers = 1;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    DeploymentSpec spec;
    spec.name = "fp8";
    spec.checkpoint = fp8_.path();
    SY_ASSERT_OK(deployment_->Apply(spec));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  std::unique_ptr<MoeSession> Open(const std::string& name, DispatchMode mode) {
    OpenSessionRequest order;
    order.deployment = name;
    order.mode = mode;
    auto session = client_->OpenWhenReady(order, std::chrono::seconds(20));
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  ServedGolden int8_{"w8a8_compressed"};
  ServedGolden fp8_{"fp8_block", /*draft=*/true};
  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;
};

// R23, R25..R27: a session's bytes tell its dtype, whatever runs beside it.
TEST_F(InterleaveTest, TwoModelsAndADraftKeepTheirDtypesOnTwoThreads) {
  const std::vector<std::string> before = Environment();
  const auto int8 = Open("int8", DispatchMode::kNormal);
  const auto fp8 = Open("fp8", DispatchMode::kLowLatency);
  const auto draft = Open("fp8", DispatchMode::kNormal);
  GoldenStep int8_step(int8_, kTokens, 1);
  GoldenStep fp8_step(fp8_, kTokens, 2);
  GoldenStep draft_step(fp8_, kTokens, 3);

  std::thread other([&] { Repeat(*int8, int8_step, LayerId{0}, kRounds); });
  std::vector<float> fp8_first;
  std::vector<float> draft_first;
  for (int round = 0; round < kRounds / 2; ++round) {
    SY_ASSERT_OK(RunGoldenStep(*fp8, fp8_step, LayerId{0}));
    SY_ASSERT_OK(RunGoldenStep(*draft, draft_step, LayerId{1}));
    if (round == 0) {
      fp8_first = fp8_step.y;
      draft_first = draft_step.y;
    }
    EXPECT_EQ(fp8_step.y, fp8_first) << round;
    EXPECT_EQ(draft_step.y, draft_first) << round;
  }
  other.join();

  const struct {
    MoeSession* session;
    DispatchDtype dtype;
    std::int32_t hidden;
  } rows[] = {{int8.get(), DispatchDtype::kInt8, int8_.hidden()},
              {fp8.get(), DispatchDtype::kFp8, fp8_.hidden()},
              {draft.get(), DispatchDtype::kBf16, fp8_.hidden()}};
  for (const auto& row : rows) {
    const AttachmentCounters counters = CountersOf(*row.session);
    EXPECT_GT(counters.rows, 0U);
    EXPECT_EQ(counters.request_payload_bytes,
              counters.rows * static_cast<std::uint64_t>(RowBytesOf(row.dtype, row.hidden).total()))
        << DispatchDtypeName(row.dtype);
  }
  EXPECT_EQ(Environment(), before);
}

// The magnitudes of a session are its own: rows of another one beside it do not raise them.
TEST_F(InterleaveTest, ASessionRecordsTheMagnitudesOfItsOwnRows) {
  OpenSessionRequest order;
  order.deployment = "int8";
  order.record_amax = true;
  SY_ASSERT_OK_AND_ASSIGN(const auto recording,
                          client_->OpenWhenReady(order, std::chrono::seconds(20)));
  const auto other = Open("int8", DispatchMode::kNormal);
  GoldenStep mine(int8_, kTokens, 4);
  GoldenStep loud(int8_, kTokens, 5);
  for (Bf16& value : loud.x) value = FloatToBf16(Bf16ToFloat(value) * 100.0F);
  std::thread beside([&] { Repeat(*other, loud, LayerId{0}, 100); });
  Repeat(*recording, mine, LayerId{0}, 100);
  beside.join();

  float largest = 0;
  for (const Bf16 value : mine.x) largest = std::max(largest, std::fabs(Bf16ToFloat(value)));
  float recorded = 0;
  for (const AttachmentCounters::Hit& hit : CountersOf(*recording).hits) {
    EXPECT_GT(hit.middle_amax, 0.0F);
    recorded = std::max(recorded, hit.inputs_amax);
  }
  EXPECT_NEAR(recorded, largest, largest / 64) << "rows came as INT8";
  for (const AttachmentCounters::Hit& hit : CountersOf(*other).hits) {
    EXPECT_EQ(hit.inputs_amax, 0.0F) << "nobody asked";
  }
}

}  // namespace
}  // namespace switchyard
