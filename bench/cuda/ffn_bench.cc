// The experts of a layer at decode, from landed FP8 rows to expert outputs, in a graph: in one
// kernel where the shape has one, else w13 with SwiGLU and quantization in its epilogue, then w2.
// Rows as in grouped_gemm_bench; "peers" are the parts of DeepGEMM's path, recorded 2026-11-22.
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/cuda/device_rig.h"
#include "tests/cuda/device_kernels.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/routing.h"
#include "worker/device/cuda/decode/fused_ffn.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::IndexRouting;
using testing::LandedRows;
using testing::RandomWeights;

constexpr int kSourceRows = 512;
constexpr int kHiddenGroupOfOneKernel = 64;

struct Case {
  const char* name;
  FfnShape shape;
  int experts;
  int rows;
  bool one_kernel;
  int layers;
  double peers;  // microseconds, recorded 2026-11-22
  double gate;
};
constexpr Case kCases[] = {
    {"qwen3-30b-a3b 32x20", {2048, 768}, 32, 20, true, 8, 55.5, 38},
    {"qwen3-30b-a3b 32x32", {2048, 768}, 32, 32, true, 8, 55.5, 40},
    {"qwen3-30b-a3b 32x20 two", {2048, 768}, 32, 20, false, 8, 55.5, 38},
    {"deepseek-v3 64x16", {7168, 2048}, 64, 16, false, 2, 760, 645},
};

std::vector<std::int32_t> RandomCounts(int experts, int rows) {
  std::mt19937 random(42);
  std::uniform_real_distribution<double> share(0.7, 1.3);
  std::vector<std::int32_t> counts;
  for (int g = 0; g < experts; g++)
    counts.push_back(static_cast<std::int32_t>(rows * share(random)));
  return counts;
}

struct Layer {
  RandomWeights w13;
  RandomWeights w2;
};

class Bench {
 public:
  explicit Bench(const Case& c)
      : case_(c),
        rows_(WeightType::kFp8, kSourceRows, c.shape.hidden, 7),
        routing_(RandomCounts(c.experts, c.rows), kSourceRows, 3),
        hidden_stride_((c.shape.intermediate + c.shape.intermediate / 128 * 4 + 127) / 128 * 128),
        hidden_(routing_.slots() * hidden_stride_),
        out_(routing_.slots() * c.shape.hidden),
        workspace_(FusedFfnWorkspaceBytes(c.shape, c.experts, routing_.slots())) {
    workspace_.Fill(0);
    const WeightOrder gated =
        c.one_kernel ? WeightOrder::kGateUpInterleaved : WeightOrder::kGateUp256;
    const WeightOrder plain =
        c.one_kernel ? WeightOrder::kRows128 : PlainOrderFor(c.experts, c.shape.hidden);
    for (int i = 0; i < c.layers; i++) {
      const auto seed = static_cast<std::uint32_t>(100 + 10 * i);
      layers_.push_back(
          {RandomWeights(
               {c.experts, 2 * c.shape.intermediate, c.shape.hidden, WeightType::kFp8, gated}, seed,
               i == 0),
           RandomWeights({c.experts, c.shape.hidden, c.shape.intermediate, WeightType::kFp8, plain},
                         seed + 5, i == 0)});
    }
  }

  void Run(const GemmPlan& plan, const GemmPlan& second, bool dependent, cudaStream_t stream,
           int i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i) % layers_.size()];
    if (case_.one_kernel) {
      Check(FusedFfn({rows_.rows(routing_.rows()), routing_.groups(), routing_.slots(),
                      layer.w13.packed(), layer.w2.packed(), Out(), workspace_.get()},
                     plan, dependent, stream),
            "FusedFfn");
      return;
    }
    const std::int64_t scales = case_.shape.intermediate;
    Check(GroupedGemm(rows_.rows(routing_.rows()), routing_.groups(), layer.w13.packed(),
                      {hidden_.get(), hidden_stride_, scales}, plan, dependent, stream),
          "w13");
    Check(GroupedGemm({hidden_.get(), hidden_stride_, scales, nullptr}, routing_.groups(),
                      layer.w2.packed(), Out(), second, dependent, stream),
          "w2");
  }
  Figure Chain(DeviceRig* rig, const GemmPlan& plan, const GemmPlan& second, int replays) {
    return rig->Chain([&](cudaStream_t s, int i) { Run(plan, second, true, s, i); },
                      2 * case_.layers, replays);
  }
  double Error(DeviceRig* rig, const GemmPlan& plan, const GemmPlan& second);
  Figure Floor(DeviceRig* rig) {
    const DeviceBuffer<std::uint32_t> sink(1);
    return rig->Chain(
        [&](cudaStream_t s, int i) {
          const Layer& layer = layers_[static_cast<std::size_t>(i) % layers_.size()];
          testing::ReadOnce(layer.w13.packed().data, layer.w13.bytes(), sink.get(), s);
          testing::ReadOnce(layer.w2.packed().data, layer.w2.bytes(), sink.get(), s);
        },
        2 * case_.layers, 50);
  }
  [[nodiscard]] GemmPlan FirstPlan() const {
    return case_.one_kernel
               ? PlanFusedFfn(case_.rows * 5 / 4)
               : PlanGroupedGemm(layers_[0].w13.packed(), case_.rows * 5 / 4, case_.experts);
  }
  [[nodiscard]] GemmPlan SecondPlan() const {
    return PlanGroupedGemm(layers_[0].w2.packed(), case_.rows * 5 / 4, case_.experts);
  }
  [[nodiscard]] double bytes() const {
    return static_cast<double>(layers_[0].w13.bytes() + layers_[0].w2.bytes());
  }

 private:
  [[nodiscard]] GemmOutput Out() const {
    return {reinterpret_cast<std::byte*>(out_.get()), case_.shape.hidden * 2, 0};
  }

  Case case_;
  LandedRows rows_;
  IndexRouting routing_;
  std::int64_t hidden_stride_;
  DeviceBuffer<std::byte> hidden_;
  DeviceBuffer<std::uint16_t> out_;
  DeviceBuffer<std::byte> workspace_;
  std::vector<Layer> layers_;
};

// The relative error against one slow step at a time, over all rows.
double Bench::Error(DeviceRig* rig, const GemmPlan& plan, const GemmPlan& second) {
  out_.Fill(0xff);
  Run(plan, second, false, rig->stream(), 0);
  const std::int64_t slots = routing_.slots();
  const FfnShape& shape = case_.shape;
  const int group = case_.one_kernel ? kHiddenGroupOfOneKernel : 128;
  const std::int64_t stride = shape.intermediate + shape.intermediate / group * 4;
  const DeviceBuffer<double> gated(slots * 2 * shape.intermediate);
  const DeviceBuffer<std::byte> hidden(slots * stride);
  const DeviceBuffer<double> wanted(slots * shape.hidden);
  const DeviceBuffer<testing::RowError> errors(slots);
  testing::ReferenceGemm(rows_.rows(routing_.rows()), routing_.groups(), slots,
                         layers_[0].w13.plain(), gated.get(), rig->stream());
  const testing::HiddenRows view = {hidden.get(), stride, shape.intermediate, shape.intermediate,
                                    group};
  testing::ReferenceSwiglu(gated.get(), slots, view, rig->stream());
  testing::ReferenceSecond(view, routing_.groups(), slots, layers_[0].w2.plain(), wanted.get(),
                           rig->stream());
  testing::CompareRows(Out(), wanted.get(), routing_.groups(), slots, shape.hidden, errors.get(),
                       rig->stream());
  Check(cudaStreamSynchronize(rig->stream()), "reference");
  testing::RowError sum = {0, 0};
  for (const testing::RowError& row : errors.ToHost()) {
    sum = {sum.error + row.error, sum.reference + row.reference};
  }
  return std::sqrt(sum.error / sum.reference);
}

void Measure(const Options& options, const Case& c, DeviceRig* rig) {
  Watchdog(30);
  Bench bench(c);
  const GemmPlan first = bench.FirstPlan();
  const GemmPlan second = bench.SecondPlan();
  const double error = bench.Error(rig, first, second);
  const Figure chain = bench.Chain(rig, first, second, 200);
  const Figure event = rig->Event(
      [&](cudaStream_t s, int i) { bench.Run(first, second, false, s, i); }, c.layers, 200);
  const Figure floor = bench.Floor(rig);
  Report(options, c.name,
         {{"us p50", chain.p50},
          {"p99", chain.p99},
          {"TB/s", bench.bytes() / chain.p50 / 1e6},
          {"gate", c.gate},
          {"floor: plain read", floor.p50},
          {"event after flush p50", event.p50},
          {"event p99", event.p99},
          {"peers recorded 2026-11-22", c.peers},
          {"relative error 1e-3", error * 1e3}});
}

void Sweep(const Options& options, const Case& c, DeviceRig* rig) {
  Watchdog(30);
  Bench bench(c);
  const GemmPlan first = bench.FirstPlan();
  const GemmPlan second = bench.SecondPlan();
  const Figure floor = bench.Floor(rig);
  for (const int window : {2, 3, 4, 5, 6}) {
    for (const int early : {4, 5, 8}) {
      if (early < window) continue;
      const Figure chain = bench.Chain(rig, {first.row_tile, window, early, 0},
                                       {second.row_tile, window, early, 0}, 15);
      Report(options, c.name,
             {{"window", static_cast<double>(window)},
              {"early", static_cast<double>(early)},
              {"us p50", chain.p50},
              {"floor", floor.p50},
              {"gate", c.gate}});
    }
  }
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  std::optional<DeviceRig> rig;
  if (!options.list) rig.emplace();
  if (!options.list) ReportCeilings(options, &*rig);
  for (const Case& c : kCases) {
    if (!IsWanted(options, c.name)) continue;
    options.sweep ? Sweep(options, c, &*rig) : Measure(options, c, &*rig);
  }
  return 0;
}

}  // namespace
}  // namespace switchyard::cuda::bench

int main(int argc, char** argv) { return switchyard::cuda::bench::Main(argc, argv); }
