#include "worker/device/host/host_run.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "tests/testing/allocation_counter.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/layer_testing.h"
#include "worker/device/host/host_codec.h"
#include "worker/expert/expert_batch.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::AllocationsOfThisThread;
using testing::ExpectedAnswer;
using testing::ExpertRow;
using testing::FailsWith;
using testing::FakeDevice;
using testing::MakeChunk;
using testing::MakeRuntime;
using testing::MakeTestLayer;
using testing::MakeTestStep;
using testing::TestChunk;
using testing::TestLayer;
using testing::TestStep;

constexpr MoeShape kShape{.hidden = 24, .intermediate = 10, .experts = 12, .top_k = 4};
constexpr std::array kModes = {DispatchMode::kNormal, DispatchMode::kLowLatency};

// Runs batches on a stream of `device`, as an expert engine does.
class Executor {
 public:
  Executor(FakeDevice* device, const MoeShape& shape, std::int64_t pairs_max) {
    stream_ = *device->MakeStream({.work_class = WorkClass::kPrefill});
    batch_ = std::make_unique<ExpertBatch>(stream_.get(), true);
    memory_ = std::make_shared<const BatchMemory>(
        *BatchMemory::Create(device, shape, {.pairs_max = pairs_max}));
    epoch_->plan.shape = shape;
  }

  struct Chunk {
    const RequestView* request = nullptr;
    const Codec* codec = nullptr;
    const std::byte* rows = nullptr;
    const std::byte* scales = nullptr;
    Bf16* out = nullptr;
    std::uint32_t nan_rows = 0;
  };

  // `routing_` grows to the largest batch and stays.
  void Execute(const LayerRuntime& layer, std::span<Chunk> chunks) {
    routing_.resize(std::max(routing_.size(), chunks.size()));
    batch_->Reserve(chunks.size());
    batch_->Begin({.layer = &layer, .mode = chunks[0].request->mode()}, epoch_, memory_);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const RequestView& request = *chunks[i].request;
      const auto width = static_cast<std::size_t>(RoutingWidth(request.mode(), request.top_k()));
      Routing& routing = routing_[i];
      routing.slots.resize(std::max(routing.slots.size(), request.rows() * width));
      routing.weights.resize(routing.slots.size());
      ExpandRouting(request, routing.slots, routing.weights);
      batch_->Add({.codec = chunks[i].codec,
                   .rows = chunks[i].rows,
                   .scales = chunks[i].scales,
                   .count = request.rows(),
                   .slots = routing.slots.data(),
                   .weights = routing.weights.data(),
                   .out = chunks[i].out});
    }
    ASSERT_TRUE(batch_->Start().ok());
    ASSERT_TRUE(batch_->Wait(std::chrono::seconds(10)));
    ASSERT_TRUE(batch_->Finish().ok());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      chunks[i].nan_rows = batch_->inputs()[i].nan_rows;
    }
  }

 private:
  struct Routing {
    std::vector<std::int32_t> slots;
    std::vector<float> weights;
  };
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ExpertBatch> batch_;
  std::shared_ptr<const BatchMemory> memory_;
  std::shared_ptr<EpochRuntime> epoch_ = std::make_shared<EpochRuntime>();
  std::vector<Routing> routing_;
};
using ExecutorChunk = Executor::Chunk;

std::unique_ptr<Executor> MakeExecutor(FakeDevice* device, std::int64_t rows_max = 4096) {
  return std::make_unique<Executor>(device, kShape, rows_max);
}

std::size_t RowsFor(const TestStep& step, WorkerOrdinal worker) {
  return step.plan.workers[static_cast<std::size_t>(worker.value)].rows.size();
}

ExecutorChunk InOut(TestChunk& chunk) {
  return {.request = &chunk.view,
          .rows = reinterpret_cast<const std::byte*>(chunk.rows.data()),
          .out = chunk.out.data()};
}

struct Wire {
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
};

Wire Encode(const Codec& codec, const std::vector<Bf16>& dense) {
  std::vector<const Bf16*> rows;
  for (std::size_t at = 0; at < dense.size(); at += kShape.hidden) rows.push_back(&dense[at]);
  const RowBytes bytes = RowBytesOf(codec.format(), kShape.hidden);
  Wire wire;
  wire.data.resize(rows.size() * static_cast<std::size_t>(bytes.data));
  wire.scales.resize(rows.size() * static_cast<std::size_t>(bytes.scales));
  AsHostCodec(codec).Encode(rows, kShape.hidden, wire.data.data(), wire.scales.data());
  return wire;
}

// Runs all chunks as one batch.
void Execute(Executor& executor, const LayerRuntime& runtime,
             std::vector<std::unique_ptr<TestChunk>>& chunks) {
  std::vector<ExecutorChunk> batch;
  for (auto& chunk : chunks) batch.push_back(InOut(*chunk));
  executor.Execute(runtime, batch);
}

// R48, R51, R57: what comes back is the definition's, bit for bit, for several sources at once.
TEST(HostRunTest, AnswersEveryRowOfSeveralSourcesAsDefined) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    for (const DispatchMode mode : kModes) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << DispatchModeName(mode));
      SeededRng rng(seed);
      const TestLayer layer = MakeTestLayer(rng, kShape, 3);
      FakeDevice device;
      const auto executor = MakeExecutor(&device);
      for (std::int32_t w = 0; w < 3; ++w) {
        std::vector<TestStep> steps;
        std::vector<std::unique_ptr<TestChunk>> chunks;
        for (int source = 0; source < 3; ++source) {
          steps.push_back(
              MakeTestStep(rng, layer, static_cast<std::int32_t>(1 + rng.Below(9)), mode));
        }
        for (const TestStep& step : steps) {
          const std::size_t rows = RowsFor(step, WorkerOrdinal{w});
          if (rows > 0) chunks.push_back(MakeChunk(layer, step, WorkerOrdinal{w}, 0, rows));
        }

        Execute(*executor, MakeRuntime(layer, WorkerOrdinal{w}), chunks);

        std::size_t next = 0;
        for (const TestStep& step : steps) {
          if (RowsFor(step, WorkerOrdinal{w}) == 0) continue;
          const TestChunk& chunk = *chunks[next++];
          EXPECT_EQ(chunk.out, ExpectedAnswer(layer, step, WorkerOrdinal{w}, chunk));
        }
      }
    }
  }
}

// All experts alike and weights that nearly cancel: the order of summation shows in every bit.
void MakeOrderSensitive(TestLayer* layer, TestStep* step) {
  for (auto& expert : layer->experts) expert = layer->experts[0];
  const std::array<float, 4> weights = {1.0F, 1048579.0F, -1048576.0F, 3.0F};
  for (std::size_t pair = 0; pair < step->routing.weights.size(); ++pair) {
    step->routing.weights[pair] = weights[pair % 4];
  }
}

// The sums of session-protocol: k ascending, each step one fused multiply-add, rounded once.
TEST(HostRunTest, SumsATokensExpertsFromTheFirstKToTheLast) {
  SeededRng rng(15);
  TestLayer layer = MakeTestLayer(rng, kShape, 1);
  TestStep step = MakeTestStep(rng, layer, 12, DispatchMode::kNormal, 0.0);
  MakeOrderSensitive(&layer, &step);
  const auto chunk = MakeChunk(layer, step, WorkerOrdinal{0}, 0, 12);
  FakeDevice device;
  ExecutorChunk in_out = InOut(*chunk);

  MakeExecutor(&device)->Execute(MakeRuntime(layer, WorkerOrdinal{0}), std::span(&in_out, 1));

  EXPECT_EQ(chunk->out, ExpectedAnswer(layer, step, WorkerOrdinal{0}, *chunk));
  std::vector<Bf16> descending;
  for (std::size_t token = 0; token < 12; ++token) {
    const std::vector<float> y = ExpertRow(layer, 0, step.x.data() + token * 24);
    for (const float value : y) {
      float sum = 0.0F;
      for (std::size_t k = 4; k-- > 0;) {
        sum = std::fma(step.routing.weights[token * 4 + k], value, sum);
      }
      descending.push_back(FloatToBf16(sum));
    }
  }
  EXPECT_NE(chunk->out, descending);
}

TEST(HostRunTest, ReadsEachExpertOnceForAWholeBatch) {
  SeededRng rng(21);
  const TestLayer layer = MakeTestLayer(rng, kShape, 1);
  FakeDevice device;
  const auto executor = MakeExecutor(&device);
  const TestStep step = MakeTestStep(rng, layer, 20, DispatchMode::kLowLatency, 0.0);
  std::vector<std::unique_ptr<TestChunk>> chunks;
  chunks.push_back(MakeChunk(layer, step, WorkerOrdinal{0}, 0, 30));
  chunks.push_back(MakeChunk(layer, step, WorkerOrdinal{0}, 30, 80));

  Execute(*executor, MakeRuntime(layer, WorkerOrdinal{0}), chunks);

  EXPECT_EQ(device.runs, 1);
  EXPECT_EQ(device.rows_run, 80);
}

// R68: chunking and batching never show in the bits.
TEST(HostRunTest, SplitsBatchesBeyondItsMemoryWithoutChangingABit) {
  for (const DispatchMode mode : kModes) {
    SeededRng rng(31);
    const TestLayer layer = MakeTestLayer(rng, kShape, 2);
    const LayerRuntime runtime = MakeRuntime(layer, WorkerOrdinal{1});
    const TestStep step = MakeTestStep(rng, layer, 40, mode);
    const std::size_t rows = RowsFor(step, WorkerOrdinal{1});
    for (const std::int64_t rows_max : {4, 5, 7, 13}) {
      for (const std::size_t chunk_rows : {1, 3, 10, 1000}) {
        SCOPED_TRACE(::testing::Message() << DispatchModeName(mode) << " rows_max " << rows_max
                                          << " chunk_rows " << chunk_rows);
        FakeDevice device;
        const auto executor = MakeExecutor(&device, rows_max);
        std::vector<std::unique_ptr<TestChunk>> chunks;
        for (std::size_t begin = 0; begin < rows; begin += chunk_rows) {
          chunks.push_back(
              MakeChunk(layer, step, WorkerOrdinal{1}, begin, std::min(rows, begin + chunk_rows)));
        }

        Execute(*executor, runtime, chunks);

        EXPECT_EQ(device.overfull_runs, 0);
        EXPECT_GT(device.runs, 1);
        for (const auto& chunk : chunks) {
          EXPECT_EQ(chunk->out, ExpectedAnswer(layer, step, WorkerOrdinal{1}, *chunk));
        }
      }
    }
  }
}

// Outputs of 2 MiB for experts of 0.6 MB, and for experts of 1.2 MB: the first are run in parts
// that stay in a cache with their outputs, the second are read once. No bit tells which it was.
TEST(HostRunTest, CutsARunWhereWeightsAndOutputsFitIntoACacheTogether) {
  for (const std::int32_t intermediate : {4, 8}) {
    const MoeShape shape{.hidden = 2048, .intermediate = intermediate, .experts = 12, .top_k = 4};
    SeededRng rng(23);
    const TestLayer layer = MakeTestLayer(rng, shape, 1, 0.0);
    const TestStep step = MakeTestStep(rng, layer, 64, DispatchMode::kNormal, 0.0);
    const auto chunk = MakeChunk(layer, step, WorkerOrdinal{0}, 0, 64);
    FakeDevice device;
    Executor executor(&device, shape, 512);
    ExecutorChunk in_out = InOut(*chunk);

    executor.Execute(MakeRuntime(layer, WorkerOrdinal{0}), std::span(&in_out, 1));

    EXPECT_EQ(device.runs, intermediate == 4 ? 2 : 1);
    EXPECT_EQ(chunk->out, ExpectedAnswer(layer, step, WorkerOrdinal{0}, *chunk));
  }
}

// Rows that came quantized give what BF16 rows of the decoded values give, however the run is cut:
// they are decoded where their answers will stand.
TEST(HostRunTest, DecodesQuantizedRowsInPlaceOfTheirAnswers) {
  SY_ASSERT_OK_AND_ASSIGN(const auto cpu, MakeDevice("cpu"));
  for (const DispatchDtype dtype : {DispatchDtype::kFp8, DispatchDtype::kInt8}) {
    for (const DispatchMode mode : kModes) {
      SCOPED_TRACE(::testing::Message()
                   << DispatchDtypeName(dtype) << " " << DispatchModeName(mode));
      SeededRng rng(31);
      const TestLayer layer = MakeTestLayer(rng, kShape, 1);
      const TestStep step = MakeTestStep(rng, layer, 11, mode);
      const std::size_t rows = RowsFor(step, WorkerOrdinal{0});
      const auto chunk = MakeChunk(layer, step, WorkerOrdinal{0}, 0, rows);
      SY_ASSERT_OK_AND_ASSIGN(std::shared_ptr<const Codec> codec,
                              cpu->MakeCodec({.format = DefaultWireFormat(dtype)}));
      const Wire wire = Encode(*codec, chunk->rows);
      AsHostCodec(*codec).Decode(wire.data.data(), wire.scales.data(),
                                 static_cast<std::int64_t>(rows), kShape.hidden,
                                 chunk->rows.data());
      FakeDevice device;
      ExecutorChunk decoded = InOut(*chunk);
      MakeExecutor(&device, 5)
          ->Execute(MakeRuntime(layer, WorkerOrdinal{0}), std::span(&decoded, 1));
      std::vector<Bf16> out(chunk->out.size(), testing::kPoison);
      ExecutorChunk quantized{.request = &chunk->view,
                              .codec = codec.get(),
                              .rows = wire.data.data(),
                              .scales = wire.scales.data(),
                              .out = out.data()};
      LayerRuntime runtime = MakeRuntime(layer, WorkerOrdinal{0});
      runtime.wire_dtypes.push_back({{.format = codec->format()}, codec});

      MakeExecutor(&device, 5)->Execute(runtime, std::span(&quantized, 1));

      EXPECT_EQ(out, chunk->out);
    }
  }
}

TEST(HostRunTest, AnswersZerosForARowWithoutLocalExperts) {
  SeededRng rng(51);
  const TestLayer layer = MakeTestLayer(rng, kShape, 1);
  const TestStep step = MakeTestStep(rng, layer, 3, DispatchMode::kNormal, 0.0);
  const auto chunk = MakeChunk(layer, step, WorkerOrdinal{0}, 0, 3);
  for (std::size_t k = 0; k < 4; ++k) chunk->words[9 + 1 + 2 * k] = 0xffffffffU;  // row 1: all -1
  FakeDevice device;
  ExecutorChunk in_out = InOut(*chunk);

  MakeExecutor(&device)->Execute(MakeRuntime(layer, WorkerOrdinal{0}), std::span(&in_out, 1));

  const std::vector<Bf16> expected = ExpectedAnswer(layer, step, WorkerOrdinal{0}, *chunk);
  for (std::size_t i = 0; i < 3 * 24; ++i) {
    EXPECT_EQ(chunk->out[i], i / 24 == 1 ? 0 : expected[i]) << i;
  }
}

TEST(HostRunTest, KeepsNanInItsOwnRowAndCountsIt) {
  for (const DispatchMode mode : kModes) {
    SeededRng rng(61);
    const TestLayer layer = MakeTestLayer(rng, kShape, 1);
    const LayerRuntime runtime = MakeRuntime(layer, WorkerOrdinal{0});
    const TestStep step = MakeTestStep(rng, layer, 6, mode, 0.0);
    const auto chunk = MakeChunk(layer, step, WorkerOrdinal{0}, 0, RowsFor(step, WorkerOrdinal{0}));
    const std::vector<Bf16> expected = ExpectedAnswer(layer, step, WorkerOrdinal{0}, *chunk);
    std::uint32_t poisoned = 0;
    for (std::size_t row = 0; row < chunk->planned.size(); ++row) {
      if (chunk->planned[row].token != 2) continue;
      chunk->rows[row * 24 + 7] = FloatToBf16(std::numeric_limits<float>::quiet_NaN());
      ++poisoned;
    }
    FakeDevice device;
    ExecutorChunk in_out = InOut(*chunk);

    MakeExecutor(&device)->Execute(runtime, std::span(&in_out, 1));

    ASSERT_GT(poisoned, 0U);
    EXPECT_EQ(in_out.nan_rows, poisoned);
    for (std::size_t i = 0; i < chunk->out.size(); ++i) {
      if (chunk->planned[i / 24].token == 2) {
        EXPECT_TRUE(std::isnan(Bf16ToFloat(chunk->out[i]))) << i;
      } else {
        EXPECT_EQ(chunk->out[i], expected[i]) << i;
      }
    }
  }
}

// R69, R57: both modes give one layer, up to the rounding of rows.
TEST(HostRunTest, NormalAndLowLatencyAgreeOnTheLayer) {
  SeededRng rng(71);
  const TestLayer layer = MakeTestLayer(rng, kShape, 3);
  const TestStep normal = MakeTestStep(rng, layer, 30, DispatchMode::kNormal);
  TestStep low_latency = normal;
  SY_ASSERT_OK(BuildDispatchPlan(normal.routing.batch(), layer.map, DispatchMode::kLowLatency,
                                 &low_latency.plan));
  FakeDevice device;
  const auto executor = MakeExecutor(&device);
  std::array<std::vector<double>, 2> y;
  for (std::size_t m = 0; m < 2; ++m) {
    const TestStep& step = m == 0 ? normal : low_latency;
    y[m].assign(30 * 24, 0.0);
    for (std::int32_t w = 0; w < 3; ++w) {
      if (RowsFor(step, WorkerOrdinal{w}) == 0) continue;
      const auto chunk =
          MakeChunk(layer, step, WorkerOrdinal{w}, 0, RowsFor(step, WorkerOrdinal{w}));
      ExecutorChunk in_out = InOut(*chunk);
      executor->Execute(MakeRuntime(layer, WorkerOrdinal{w}), std::span(&in_out, 1));
      for (std::size_t i = 0; i < chunk->out.size(); ++i) {
        const PlannedRow& row = chunk->planned[i / 24];
        const double weight = m == 0 ? 1.0 : step.routing.weights[row.token * 4 + row.k];
        y[m][row.token * 24 + i % 24] += weight * Bf16ToFloat(chunk->out[i]);
      }
    }
  }

  double dot = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < y[0].size(); ++i) {
    dot += y[0][i] * y[1][i];
    norm += y[0][i] * y[0][i] + y[1][i] * y[1][i];
  }
  ASSERT_GT(norm, 1.0);
  EXPECT_LT(1.0 - 2.0 * dot / norm, 2e-5);
}

TEST(HostRunTest, AllocatesNothingOnceMade) {
  for (const DispatchMode mode : kModes) {
    SeededRng rng(81);
    const TestLayer layer = MakeTestLayer(rng, kShape, 1);
    const LayerRuntime runtime = MakeRuntime(layer, WorkerOrdinal{0});
    const TestStep step = MakeTestStep(rng, layer, 25, mode);
    const auto chunk = MakeChunk(layer, step, WorkerOrdinal{0}, 0, RowsFor(step, WorkerOrdinal{0}));
    FakeDevice device;
    const auto executor = MakeExecutor(&device, 16);
    ExecutorChunk in_out = InOut(*chunk);
    executor->Execute(runtime, std::span(&in_out, 1));  // The test's own routing grows here.
    device.runs = 0;
    const std::uint64_t before = AllocationsOfThisThread();

    executor->Execute(runtime, std::span(&in_out, 1));

    EXPECT_EQ(AllocationsOfThisThread() - before, 0U);
    EXPECT_GT(device.runs, 1);
  }
}

TEST(HostRunTest, RefusesLessMemoryThanOneTokenNeeds) {
  FakeDevice device;

  EXPECT_THAT(device.MakeWorkspace(kShape, 3),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
