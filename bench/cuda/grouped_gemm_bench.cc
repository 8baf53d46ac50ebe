// Grouped products at decode. Each row: microseconds in a chain of dependent launches (p50, p99),
// as an event after a flush, the plain read of the same bytes in the same run, and what DeepGEMM
// 54e2261 took on the same kind of machine, "recorded".
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/device_rig.h"
#include "tests/cuda/device_kernels.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/routing.h"
#include "worker/device/cuda/decode/grouped_gemm.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::IndexRouting;
using testing::LandedRows;
using testing::RandomWeights;

constexpr int kSourceRows = 512;
constexpr std::int64_t kRotatedBytes = std::int64_t{700} << 20;

struct Case {
  const char* name;
  WeightType type;
  int groups;
  int rows;
  std::int64_t n;
  std::int64_t k;
  // Microseconds in a graph, recorded 2026-11-22; of cases without a gate of their own from TB/s
  // after a flush, recorded 2026-11-20. 0: none.
  double deepgemm;
  double gate;  // 0: kFloorShare of the floor and kFloorExtra
};
constexpr double kFloorShare = 1.05;
constexpr double kFloorExtra = 3;  // microseconds
constexpr Case kCases[] = {
    {"fp8 32x20 1536x2048", WeightType::kFp8, 32, 20, 1536, 2048, 31.5, 25},
    {"fp8 32x20 2048x768", WeightType::kFp8, 32, 20, 2048, 768, 18.9, 15.5},
    {"fp8 64x16 4096x7168", WeightType::kFp8, 64, 16, 4096, 7168, 485, 420},
    {"fp8 64x16 7168x2048", WeightType::kFp8, 64, 16, 7168, 2048, 252, 221},
    {"bf16 32x20 1536x2048", WeightType::kBf16, 32, 20, 1536, 2048, 56.8, 48},
    {"bf16 32x20 2048x768", WeightType::kBf16, 32, 20, 2048, 768, 31.7, 25},
    {"bf16 64x16 4096x7168", WeightType::kBf16, 64, 16, 4096, 7168, 907, 855},
    {"bf16 64x16 7168x2048", WeightType::kBf16, 64, 16, 7168, 2048, 467, 435},
    {"fp8 32x20 6144x7168", WeightType::kFp8, 32, 20, 6144, 7168, 358.6, 0},
    {"fp8 32x20 7168x3072", WeightType::kFp8, 32, 20, 7168, 3072, 195.2, 0},
    {"fp8 32x20 4096x2048", WeightType::kFp8, 32, 20, 4096, 2048, 79.0, 0},
    {"fp8 6x20 6144x7168", WeightType::kFp8, 6, 20, 6144, 7168, 75.9, 0},
    {"fp8 6x20 4096x2048", WeightType::kFp8, 6, 20, 4096, 2048, 21.6, 0},
    {"bf16 32x20 6144x7168", WeightType::kBf16, 32, 20, 6144, 7168, 701.1, 0},
    {"bf16 32x20 7168x3072", WeightType::kBf16, 32, 20, 7168, 3072, 365.1, 0},
    {"bf16 32x20 4096x2048", WeightType::kBf16, 32, 20, 4096, 2048, 150.8, 0},
    {"bf16 6x20 6144x7168", WeightType::kBf16, 6, 20, 6144, 7168, 153.6, 0},
    {"bf16 6x20 4096x2048", WeightType::kBf16, 6, 20, 4096, 2048, 35.6, 0},
    // The gates of four bits are those of FP8 by 1.6.
    {"int8 32x20 1536x2048", WeightType::kInt8, 32, 20, 1536, 2048, 0, 0},
    {"int8 64x16 4096x7168", WeightType::kInt8, 64, 16, 4096, 7168, 0, 0},
    {"int4 32x20 1536x2048", WeightType::kInt4, 32, 20, 1536, 2048, 0, 15.6},
    {"int4 32x20 2048x768", WeightType::kInt4, 32, 20, 2048, 768, 0, 9.7},
    {"int4 64x16 4096x7168", WeightType::kInt4, 64, 16, 4096, 7168, 0, 263},
    {"int4 64x16 7168x2048", WeightType::kInt4, 64, 16, 7168, 2048, 0, 138},
    {"int4 e4m3 32x20 1536x2048", WeightType::kInt4Fp8, 32, 20, 1536, 2048, 0, 15.6},
    {"int4 e4m3 32x20 2048x768", WeightType::kInt4Fp8, 32, 20, 2048, 768, 0, 9.7},
    {"int4 e4m3 64x16 4096x7168", WeightType::kInt4Fp8, 64, 16, 4096, 7168, 0, 263},
    {"int4 e4m3 64x16 7168x2048", WeightType::kInt4Fp8, 64, 16, 7168, 2048, 0, 138},
    {"e2m1 32x20 1536x2048", WeightType::kE2m1, 32, 20, 1536, 2048, 0, 15.6},
    {"e2m1 32x20 2048x768", WeightType::kE2m1, 32, 20, 2048, 768, 0, 9.7},
    {"e2m1 64x16 4096x7168", WeightType::kE2m1, 64, 16, 4096, 7168, 0, 263},
    {"e2m1 64x16 7168x2048", WeightType::kE2m1, 64, 16, 7168, 2048, 0, 138},
};

bool HasSumsOnly(WeightType type) { return type == WeightType::kInt8 || IsNarrow(type); }

// Rows of a group vary by 30 % round the mean.
std::vector<std::int32_t> RandomCounts(int groups, int rows) {
  std::mt19937 random(42);
  std::uniform_real_distribution<double> share(0.7, 1.3);
  std::vector<std::int32_t> counts;
  for (int g = 0; g < groups; g++)
    counts.push_back(static_cast<std::int32_t>(rows * share(random)));
  return counts;
}

// One case with everything it reads.
class Bench {
 public:
  Bench(const Case& c, WeightOrder order)
      : case_(c),
        rows_(c.type, kSourceRows, c.k, 7),
        routing_(RandomCounts(c.groups, c.rows), kSourceRows, 3),
        out_(routing_.slots() * c.n),
        carry_(CarryBytesOf(order, 64, kMultiprocessorsMax)) {
    carry_.Fill(0);
    const std::int64_t bytes = c.groups * WeightBytesOf(c.type, c.n, c.k);
    operations_ = bytes > (std::int64_t{300} << 20) ? 6 : 24;
    int sets = std::max<int>(2, static_cast<int>((kRotatedBytes + bytes - 1) / bytes));
    operations_ = std::max(operations_, sets);
    while (operations_ % sets != 0) sets++;
    for (int i = 0; i < sets; i++) {
      weights_.emplace_back(testing::WeightSpec{c.groups, c.n, c.k, c.type, order},
                            static_cast<std::uint32_t>(100 + i), i == 0);
    }
  }

  void Run(const GemmPlan& plan, bool dependent, cudaStream_t stream, int i) {
    const RandomWeights& weights = weights_[static_cast<std::size_t>(i) % weights_.size()];
    Check(GroupedGemm(rows_.rows(routing_.rows()), routing_.groups(), weights.packed(), view(),
                      plan, dependent, stream),
          "GroupedGemm");
  }
  // FP32 where there is nothing else.
  [[nodiscard]] GemmOutput view() const {
    const bool fp32 = HasSumsOnly(case_.type);
    return {.out = reinterpret_cast<std::byte*>(out_.get()),
            .stride = case_.n * (fp32 ? 4 : 2),
            .fp32 = fp32};
  }
  Figure Chain(DeviceRig* rig, const GemmPlan& plan, bool dependent, int replays) {
    return rig->Chain([&](cudaStream_t s, int i) { Run(plan, dependent, s, i); }, operations_,
                      replays);
  }
  // The worst row's relative error, over all rows and columns; of BF16 output.
  double Error(DeviceRig* rig, const GemmPlan& plan) {
    if (HasSumsOnly(case_.type)) return NAN;
    out_.Fill(0xff);
    Run(plan, false, rig->stream(), 0);
    const std::int64_t slots = routing_.slots();
    const DeviceBuffer<double> wanted(slots * case_.n);
    const DeviceBuffer<testing::RowError> errors(slots);
    testing::ReferenceGemm(rows_.rows(routing_.rows()), routing_.groups(), slots,
                           weights_[0].plain(), wanted.get(), rig->stream());
    testing::CompareRows(view(), wanted.get(), routing_.groups(), slots, case_.n, errors.get(),
                         rig->stream());
    Check(cudaStreamSynchronize(rig->stream()), "reference");
    double worst = 0;
    for (const testing::RowError& row : errors.ToHost()) {
      const double relative = std::sqrt(row.error / row.reference);
      if (!(relative <= worst)) worst = relative;
    }
    return worst;
  }
  Figure Floor(DeviceRig* rig) {
    const DeviceBuffer<std::uint32_t> sink(1);
    return rig->Chain(
        [&](cudaStream_t s, int i) {
          const RandomWeights& weights = weights_[static_cast<std::size_t>(i) % weights_.size()];
          testing::ReadOnce(weights.packed().data, weights.bytes(), sink.get(), s);
        },
        operations_, 50);
  }
  [[nodiscard]] PackedWeights packed() const { return weights_[0].packed(); }
  [[nodiscard]] GemmPlan Plan() const {
    return PlanGroupedGemm(packed(), case_.rows * 5 / 4, case_.groups,
                           {carry_.get(), carry_.count()});
  }
  [[nodiscard]] double bytes() const { return static_cast<double>(weights_[0].bytes()); }
  [[nodiscard]] int sets() const { return static_cast<int>(weights_.size()); }

 private:
  static constexpr int kMultiprocessorsMax = 160;

  Case case_;
  LandedRows rows_;
  IndexRouting routing_;
  DeviceBuffer<float> out_;
  DeviceBuffer<std::byte> carry_;
  std::vector<RandomWeights> weights_;
  int operations_ = 0;
};

void Measure(const Options& options, const Case& c, DeviceRig* rig) {
  Watchdog(30);
  const WeightOrder order =
      HasSumsOnly(c.type) ? WeightOrder::kRows128 : PlainOrderFor(c.groups, c.n);
  Bench bench(c, order);
  const GemmPlan plan = bench.Plan();
  GemmPlan uncut = plan;
  uncut.carry = {};
  const double error = bench.Error(rig, plan);
  const Figure chain = bench.Chain(rig, plan, true, 200);
  const Figure whole = bench.Chain(rig, uncut, true, 200);
  const Figure plain = bench.Chain(rig, plan, false, 100);
  const Figure event =
      rig->Event([&](cudaStream_t s, int i) { bench.Run(plan, false, s, i); }, bench.sets(), 200);
  const Figure floor = bench.Floor(rig);
  const double gate = c.gate > 0 ? c.gate : floor.p50 * kFloorShare + kFloorExtra;
  Report(options, c.name,
         {{"us p50", chain.p50},
          {"p99", chain.p99},
          {"TB/s", bench.bytes() / chain.p50 / 1e6},
          {"gate", gate},
          {"floor: plain read", floor.p50},
          {"whole units", whole.p50},
          {"not dependent", plain.p50},
          {"event after flush p50", event.p50},
          {"event p99", event.p99},
          {"DeepGEMM, recorded", c.deepgemm},
          {"worst row error 1e-3", error * 1e3}});
}

void Sweep(const Options& options, const Case& c, DeviceRig* rig) {
  for (const WeightOrder order : {WeightOrder::kRows128, WeightOrder::kRows256}) {
    if (HasSumsOnly(c.type) && order != WeightOrder::kRows128) continue;
    Watchdog(30);
    Bench bench(c, order);
    const GemmPlan normal = bench.Plan();
    const Figure floor = bench.Floor(rig);
    std::vector<GemmPlan> plans;
    for (const int window : {2, 3, 4, 5, 6, 8, 10, 12}) {
      if (order == WeightOrder::kRows256 && window > 4) continue;
      for (const int early : {3, 4, 5, 8, 12}) {
        if (early >= window) plans.push_back({normal.row_tile, window, early, 0, normal.carry});
      }
    }
    for (const GemmPlan& plan : plans) {
      const Figure chain = bench.Chain(rig, plan, true, 15);
      Report(options, std::string(c.name) + (order == WeightOrder::kRows128 ? " 128" : " 256"),
             {{"window", static_cast<double>(plan.window)},
              {"early", static_cast<double>(plan.early)},
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
