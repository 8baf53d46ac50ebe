// A small random MoE layer on fake devices, and what it must answer, row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/format/bf16.h"
#include "core/moe_shape.h"
#include "core/placement_map.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/random_routing.h"
#include "tests/testing/random_tensors.h"
#include "worker/device/host/host_run.h"
#include "worker/expert/layer_runtime.h"
#include "worker/routing/request_codec.h"

namespace switchyard::testing {

struct TestLayer {
  MoeShape shape;
  std::vector<RandomExpert> experts;  // by ExpertId
  LayerPlacement placement;
  PlacementMap map;
};

inline TestLayer MakeTestLayer(Rng& rng, const MoeShape& shape, std::int32_t workers,
                               double replicas = 0.3) {
  TestLayer layer{.shape = shape,
                  .experts = {},
                  .placement = RandomPlacement(rng, shape.experts, workers, replicas),
                  .map = {}};
  for (std::int32_t e = 0; e < shape.experts; ++e) {
    layer.experts.emplace_back(shape, rng.Next());
  }
  layer.map = PlacementMap(layer.placement, shape.experts, workers);
  return layer;
}

// The runtime of `worker`.
inline LayerRuntime MakeRuntime(const TestLayer& layer, WorkerOrdinal worker) {
  LayerRuntime runtime;
  runtime.wire_dtypes = {{{.format = kBf16Format}, nullptr}};
  for (const PhysicalExpert& p : layer.map.OnWorker(worker)) {
    const RandomExpert& raw = layer.experts[static_cast<std::size_t>(p.expert.value)];
    runtime.slots.push_back(
        {.expert = p.expert,
         .key = {},
         .weights = std::make_shared<const FakeExpert>(layer.shape, raw.view())});
  }
  std::vector<TableEntry> entries;
  for (const ExpertSlot& slot : runtime.slots) entries.push_back({slot.expert, slot.weights});
  runtime.table = std::make_shared<HostTable>(std::move(entries));
  runtime.load = std::make_shared<LayerLoad>(runtime.slots.size());
  return runtime;
}

// FP32 output of one expert for one row, bit for bit that of FakeDevice.
inline std::vector<float> ExpertRow(const TestLayer& layer, std::int32_t expert, const Bf16* x) {
  const RandomExpert& raw = layer.experts[static_cast<std::size_t>(expert)];
  std::vector<float> h(static_cast<std::size_t>(layer.shape.intermediate));
  std::vector<float> y(static_cast<std::size_t>(layer.shape.hidden));
  FakeDevice::RunRow(FakeExpert(layer.shape, raw.view()), x, h, y.data());
  return y;
}

// One worker's chunk of a planned step as the worker sees it: words, view, dense rows, poisoned
// answer.
struct TestChunk {
  std::vector<std::uint32_t> words;
  RequestGeometry geometry;
  RequestView view;
  std::vector<PlannedRow> planned;
  std::vector<Bf16> rows;
  std::vector<Bf16> out;
};

inline constexpr Bf16 kPoison = 0x7fa5;  // A NaN that no arithmetic makes.

struct TestStep {
  Routing routing;
  std::vector<Bf16> x;  // [tokens, hidden]
  DispatchPlan plan;
};

inline TestStep MakeTestStep(Rng& rng, const TestLayer& layer, std::int32_t tokens,
                             DispatchMode mode, double none = 0.1) {
  TestStep step;
  step.routing = RandomRouting(rng, {tokens, layer.shape.top_k, layer.shape.experts}, 0.5, none);
  step.x = GaussianBf16(
      static_cast<std::size_t>(tokens) * static_cast<std::size_t>(layer.shape.hidden), 1.0, rng);
  if (!BuildDispatchPlan(step.routing.batch(), layer.map, mode, &step.plan).ok()) std::abort();
  return step;
}

// Rows [begin, end) of what `worker` gets.
inline std::unique_ptr<TestChunk> MakeChunk(const TestLayer& layer, const TestStep& step,
                                            WorkerOrdinal worker, std::size_t begin,
                                            std::size_t end) {
  auto chunk = std::make_unique<TestChunk>();
  const WorkerRows& all = step.plan.workers[static_cast<std::size_t>(worker.value)];
  chunk->planned.assign(all.rows.begin() + static_cast<std::ptrdiff_t>(begin),
                        all.rows.begin() + static_cast<std::ptrdiff_t>(end));
  std::vector<std::uint32_t> counts(all.slot_counts.size(), 0);
  if (step.plan.mode == DispatchMode::kLowLatency) {
    for (const PlannedRow& row : chunk->planned) ++counts[static_cast<std::size_t>(row.slot)];
  }
  chunk->geometry = {.mode = step.plan.mode,
                     .rows = static_cast<std::uint32_t>(end - begin),
                     .hidden = layer.shape.hidden,
                     .top_k = layer.shape.top_k,
                     .local_slots = static_cast<std::int32_t>(layer.map.OnWorker(worker).size())};
  const std::size_t per_row = 1 + 2 * static_cast<std::size_t>(layer.shape.top_k);
  chunk->words.assign(step.plan.mode == DispatchMode::kNormal ? (end - begin) * per_row
                                                              : counts.size() + 2 * (end - begin),
                      0xdeadbeefU);
  WriteRequestMetadata(step.plan.mode,
                       {.rows = chunk->planned,
                        .slot_counts = counts,
                        .worker = worker,
                        .top_k = step.plan.top_k,
                        .slot_of_pair = step.plan.slot_of_pair,
                        .worker_of_pair = step.plan.worker_of_pair,
                        .weights = step.routing.weights},
                       std::as_writable_bytes(std::span(chunk->words)));
  if (!ParseRequestMetadata(chunk->words, chunk->geometry, &chunk->view).ok()) std::abort();
  const auto hidden = static_cast<std::size_t>(layer.shape.hidden);
  for (const PlannedRow& row : chunk->planned) {
    const auto x = step.x.begin() + static_cast<std::ptrdiff_t>(row.token * hidden);
    chunk->rows.insert(chunk->rows.end(), x, x + static_cast<std::ptrdiff_t>(hidden));
  }
  chunk->out.assign(chunk->rows.size(), kPoison);
  return chunk;
}

// What `worker` must answer for the rows of `chunk`, from the definition.
inline std::vector<Bf16> ExpectedAnswer(const TestLayer& layer, const TestStep& step,
                                        WorkerOrdinal worker, const TestChunk& chunk) {
  const auto hidden = static_cast<std::size_t>(layer.shape.hidden);
  const auto top_k = static_cast<std::size_t>(layer.shape.top_k);
  std::vector<Bf16> answer;
  for (const PlannedRow& row : chunk.planned) {
    const Bf16* x = step.x.data() + row.token * hidden;
    std::vector<float> sum(hidden, 0.0F);
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::size_t pair = row.token * top_k + k;
      if (step.plan.mode == DispatchMode::kLowLatency && k != row.k) continue;
      if (step.plan.worker_of_pair[pair] != worker.value) continue;
      const std::vector<float> y = ExpertRow(layer, step.routing.ids[pair], x);
      const float weight =
          step.plan.mode == DispatchMode::kNormal ? step.routing.weights[pair] : 1.0F;
      for (std::size_t i = 0; i < hidden; ++i) sum[i] = std::fma(weight, y[i], sum[i]);
    }
    for (const float value : sum) answer.push_back(FloatToBf16(value));
  }
  return answer;
}

}  // namespace switchyard::testing
