// Expert kernels against the memory they read. With few rows an expert costs the reading of its
// weights, so weight_GB/s ought to come near floor_GB/s: `ratio` is the one by the other, the
// median over pairs of passes taken in turn. All experts of a case are walked in each pass, which
// with the big shapes keeps them out of the caches. From some hundred rows on, GFLOP/s is the
// figure to look at. With /blocks the weights have a scale for each block of 128 by 128, as in FP8,
// with /groups one for each output and 128 k, as INT4 has; `x_plain` is their time by that of the
// same experts without, passes in turn.
//
//   expert_kernel_bench --benchmark_filter='amx_bf16/.*/rows:16'
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include <benchmark/benchmark.h>

#include "bench/read_bandwidth.h"
#include "core/rng.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/machine/cpuid.h"

namespace switchyard::bench {
namespace {

constexpr int kPasses = 9;
constexpr std::int64_t kFloorBytes = std::int64_t{576} << 20;

enum class Scales { kNone, kBlocks, kGroups };

struct Case {
  std::string family;
  MoeShape shape;         // experts: how many are walked
  std::int64_t rows = 0;  // of each expert
  int threads = 1;
  bool split = false;  // one expert a Run, so that threads share it
  bool warm = false;   // a pass not timed comes before each: weights are where they fit
  Scales scales = Scales::kNone;
};

// BF16 between 2^-7 and 2^-5 in size, of both signs. Never zeros: they flatter the clock.
std::vector<Bf16> RandomWeights(std::size_t count, SeededRng& rng) {
  std::vector<Bf16> weights(count + 3);
  for (std::size_t i = 0; i < count; i += 4) {
    const std::uint64_t bits = (rng.Next() & 0x80ff80ff80ff80ffULL) | 0x3c003c003c003c00ULL;
    for (std::size_t j = 0; j < 4; ++j) weights[i + j] = static_cast<Bf16>(bits >> (16 * j));
  }
  weights.resize(count);
  return weights;
}

template <typename T>
T ValueOrExit(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(value).value();
}

// A layer of packed experts with rows for each.
class Layer {
 public:
  explicit Layer(const Case& which) : which_(which) {
    const MoeShape& shape = which.shape;
    device_ = ValueOrExit(
        CpuBackend::Create({.kernel_family = which.family, .compute_threads = which.threads}));
    const auto size =
        static_cast<std::size_t>(shape.hidden) * static_cast<std::size_t>(shape.intermediate);
    SeededRng rng(1);
    const auto hidden = static_cast<std::size_t>(shape.hidden);
    x_ = RandomWeights(static_cast<std::size_t>(which.rows) * hidden, rng);
    for (std::int64_t row = 0; row < which.rows; ++row) {
      rows_.push_back(x_.data() + static_cast<std::size_t>(row) * hidden);
    }
    out_.resize(rows_.size() * hidden);
    for (std::int32_t e = 0; e < shape.experts; ++e) {
      const std::vector<Bf16> gate = RandomWeights(size, rng);
      const std::vector<Bf16> up = RandomWeights(size, rng);
      const std::vector<Bf16> down = RandomWeights(size, rng);
      ExpertWeightsView view = {.gate = gate, .up = up, .down = down};
      const std::vector<float> scales = RandomScales(which, rng);
      const auto kind =
          which.scales == Scales::kBlocks ? &WeightScalesView::blocks : &WeightScalesView::groups;
      for (WeightScalesView* to : {&view.gate_scales, &view.up_scales, &view.down_scales}) {
        to->*kind = scales;
      }
      experts_.push_back(ValueOrExit(device_->Pack(shape, view)));
      bytes_ += experts_.back()->bytes();
    }
    for (const auto& expert : experts_) {
      batches_.push_back({.expert = expert.get(), .rows = rows_, .out = out_.data()});
    }
    scratch_ = ValueOrExit(device_->MakeScratch(shape));
  }

  // Seconds for one pass over all experts. Every expert writes to one output, as a worker's would
  // to its reply slots: small against the weights.
  double RunOnce() {
    const auto start = std::chrono::steady_clock::now();
    if (which_.split || which_.threads == 1) {
      for (const ExpertRows& batch : batches_) device_->RunExperts({&batch, 1}, *scratch_);
    } else {
      device_->RunExperts(batches_, *scratch_);
    }
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] double flops() const {
    return 6.0 * which_.shape.hidden * which_.shape.intermediate * which_.shape.experts *
           static_cast<double>(which_.rows);
  }

 private:
  // As many for each projection: sizes are multiples of 128.
  static std::vector<float> RandomScales(const Case& which, SeededRng& rng) {
    if (which.scales == Scales::kNone) return {};
    const std::int64_t blocks =
        ScaleBlocks(which.shape.hidden) * ScaleBlocks(which.shape.intermediate);
    const bool groups = which.scales == Scales::kGroups;
    std::vector<float> scales(static_cast<std::size_t>(groups ? blocks * kScaleBlock : blocks));
    for (float& scale : scales) scale = static_cast<float>(0.5 + rng.Uniform());
    return scales;
  }

  Case which_;
  std::unique_ptr<CpuBackend> device_;
  std::vector<Bf16> x_;
  std::vector<const Bf16*> rows_;
  std::vector<float> out_;
  std::vector<std::unique_ptr<PackedExpert>> experts_;
  std::vector<ExpertRows> batches_;
  std::unique_ptr<KernelScratch> scratch_;
  std::int64_t bytes_ = 0;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void BM_ExpertFfn(benchmark::State& state, const Case& which) {
  Layer layer(which);
  std::unique_ptr<Layer> plain;
  if (which.scales != Scales::kNone) {
    Case without = which;
    without.scales = Scales::kNone;
    plain = std::make_unique<Layer>(without);
    plain->RunOnce();
  }
  ReadBandwidth floor(kFloorBytes, which.threads);
  layer.RunOnce();
  std::vector<double> seconds;
  std::vector<double> floors;
  std::vector<double> ratios;
  std::vector<double> to_plain;
  for (auto _ : state) {
    const double floor_rate = static_cast<double>(floor.bytes()) / floor.ReadOnce();
    if (which.warm) layer.RunOnce();
    const double pass = layer.RunOnce();
    state.SetIterationTime(pass);
    seconds.push_back(pass);
    floors.push_back(floor_rate);
    ratios.push_back(static_cast<double>(layer.bytes()) / pass / floor_rate);
    if (plain == nullptr) continue;
    if (which.warm) plain->RunOnce();
    to_plain.push_back(pass / plain->RunOnce());
  }
  const double pass = Median(seconds);
  state.counters["us/expert"] = pass / which.shape.experts * 1e6;
  state.counters["weight_GB/s"] = static_cast<double>(layer.bytes()) / pass / 1e9;
  state.counters["floor_GB/s"] = Median(floors) / 1e9;
  state.counters["ratio"] = Median(ratios);
  state.counters["GFLOP/s"] = layer.flops() / pass / 1e9;
  if (plain != nullptr) state.counters["x_plain"] = Median(to_plain);
}

std::string NameOf(const Case& which) {
  return absl::StrFormat("%s/hidden:%d/inter:%d/experts:%d/threads:%d%s%s/rows:%d", which.family,
                         which.shape.hidden, which.shape.intermediate, which.shape.experts,
                         which.threads,
                         which.split  ? "/split"
                         : which.warm ? "/warm"
                                      : "",
                         which.scales == Scales::kBlocks   ? "/blocks"
                         : which.scales == Scales::kGroups ? "/groups"
                                                           : "",
                         which.rows);
}

void Register(const Case& which) {
  benchmark::RegisterBenchmark(NameOf(which).c_str(),
                               [which](benchmark::State& state) { BM_ExpertFfn(state, which); })
      ->UseManualTime()
      ->Iterations(kPasses)
      ->Unit(benchmark::kMillisecond);
}

// Qwen3-30B-A3B's expert, DeepSeek-V3's, and all 64 of the shipped demonstration model, warm: they
// fit the last-level cache, so the ratio may exceed 1.
void RegisterAll() {
  constexpr MoeShape kQwen = {.hidden = 2048, .intermediate = 768, .experts = 64, .top_k = 8};
  constexpr MoeShape kDeepSeek = {.hidden = 7168, .intermediate = 2048, .experts = 8, .top_k = 8};
  constexpr MoeShape kDemo = {.hidden = 256, .intermediate = 128, .experts = 64, .top_k = 4};
  const CpuFeatures cpu = DetectCpuFeatures();
  for (const KernelFamily* family : KernelFamilies()) {
    if (!family->usable(cpu) || family == &kScalarFamily) continue;
    for (const int threads : {1, 2}) {
      for (const std::int64_t rows : {1, 4, 16, 32, 256}) {
        Register({.family = family->name, .shape = kQwen, .rows = rows, .threads = threads});
      }
      for (const Scales scales : {Scales::kBlocks, Scales::kGroups}) {
        for (const std::int64_t rows : {1, 16, 256}) {
          Register({.family = family->name,
                    .shape = kQwen,
                    .rows = rows,
                    .threads = threads,
                    .scales = scales});
        }
      }
      for (const std::int64_t rows : {1, 16}) {
        Register({.family = family->name, .shape = kDeepSeek, .rows = rows, .threads = threads});
        Register({.family = family->name,
                  .shape = kDemo,
                  .rows = rows,
                  .threads = threads,
                  .warm = true});
      }
    }
    Register({.family = family->name, .shape = kQwen, .rows = 1, .threads = 2, .split = true});
  }
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  switchyard::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
