// A layer at decode on the GPUs of one host, a rank on each, in one graph: BF16 tokens, dispatch in
// FP8, the experts, combine to BF16 sums.
//
//   cuda_exchange_layer_bench [--list] [--case NAME] [--ceilings] [--json PATH]
//
// Each figure is of the slowest rank, p50 of 40 replays of a graph of layers with dependent launch,
// each layer with weights of its own. Beside it its parts, each alone in such a graph; the plain
// read of a rank's weights; and, for four ranks, what a layer of DeepEP V2 and DeepGEMM took there,
// "recorded 2026-11-22". The rows of experts are compared with products in FP64 first.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/exchange_rig.h"
#include "tests/cuda/device_kernels.h"
#include "tests/cuda/random_weights.h"
#include "worker/device/cuda/decode/fused_ffn.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::ExchangeGroup;
using testing::RandomWeights;

constexpr std::uint64_t kPatience = 5'000'000'000;  // ns
constexpr int kHiddenGroupOfOneKernel = 64;

struct Model {
  const char* name;
  FfnShape shape;
  int experts;
  int top_k;
  bool one_kernel;
  int layers;
  double peers;  // microseconds on four ranks, 128 tokens each
};
constexpr Model kModels[] = {{"Qwen3-30B-A3B", {2048, 768}, 128, 8, true, 6, 99.4},
                             {"DeepSeek-V3", {7168, 2048}, 256, 8, false, 2, 817}};

// The experts of one rank: weights of every layer, and scratch.
struct RankExperts {
  std::vector<RandomWeights> w13;
  std::vector<RandomWeights> w2;
  DeviceBuffer<std::byte> hidden;     // of two products
  DeviceBuffer<std::byte> workspace;  // of one kernel
  DeviceBuffer<std::uint32_t> sink;
};

class LayerBench {
 public:
  LayerBench(const Model& model, int ranks, int tokens)
      : model_(model),
        group_({.ranks = ranks,
                .tokens_max = tokens,
                .hidden = static_cast<int>(model.shape.hidden),
                .top_k = model.top_k,
                .experts_of_rank = model.experts / ranks,
                .formats = ExchangeFormat::kFp8},
               ranks, kPatience),
        rows_of_expert_(std::max(1, ranks * tokens * model.top_k / model.experts)),
        hidden_stride_((model.shape.intermediate + model.shape.intermediate / 128 * 4 + 127) / 128 *
                       128) {
    std::mt19937_64 random(23);
    for (int r = 0; r < ranks; ++r) {
      group_.SetTokens(r, testing::RandomTokens(group_.shape(), tokens, 0.0, random), tokens);
      MakeExperts(r);
    }
  }

  void Dispatch(int rank) { group_.Dispatch(rank, true); }
  void Combine(int rank) { group_.Combine(rank, true); }
  void Experts(int rank, int i) {
    group_.Select(rank);
    RankExperts& own = *experts_[static_cast<std::size_t>(rank)];
    const auto layer = static_cast<std::size_t>(i) % own.w13.size();
    const cudaStream_t stream = group_.stream(rank);
    if (model_.one_kernel) {
      Check(
          FusedFfn({group_.LandedRows(rank), group_.Groups(rank), slots(), own.w13[layer].packed(),
                    own.w2[layer].packed(), Out(rank), own.workspace.get()},
                   PlanFusedFfn(rows_of_expert_ * 5 / 4), true, stream),
          "FusedFfn");
      return;
    }
    const std::int64_t scales = model_.shape.intermediate;
    const auto plan = [&](const RandomWeights& weights) {
      return PlanGroupedGemm(weights.packed(), rows_of_expert_ * 5 / 4,
                             group_.shape().experts_of_rank);
    };
    Check(
        GroupedGemm(group_.LandedRows(rank), group_.Groups(rank), own.w13[layer].packed(),
                    {own.hidden.get(), hidden_stride_, scales}, plan(own.w13[layer]), true, stream),
        "w13");
    Check(GroupedGemm({own.hidden.get(), hidden_stride_, scales, nullptr}, group_.Groups(rank),
                      own.w2[layer].packed(), Out(rank), plan(own.w2[layer]), true, stream),
          "w2");
  }
  void ReadWeights(int rank, int i) {
    group_.Select(rank);
    RankExperts& own = *experts_[static_cast<std::size_t>(rank)];
    const auto layer = static_cast<std::size_t>(i) % own.w13.size();
    for (const RandomWeights* weights : {&own.w13[layer], &own.w2[layer]}) {
      testing::ReadOnce(weights->packed().data, weights->bytes(), own.sink.get(),
                        group_.stream(rank));
    }
  }
  // The relative error of the rows of a rank's experts of layer 0, after one step of all ranks.
  double Error(int rank);

  ExchangeGroup& group() { return group_; }
  [[nodiscard]] int layers() const { return model_.layers; }
  [[nodiscard]] bool faulted() const {
    for (int r = 0; r < group_.ranks(); ++r) {
      if (group_.State(r).fault != 0) return true;
    }
    return false;
  }

 private:
  [[nodiscard]] std::int64_t slots() const { return ExchangeSlotsMax(group_.shape()); }
  [[nodiscard]] GemmOutput Out(int rank) const {
    return {reinterpret_cast<std::byte*>(group_.answers(rank)), model_.shape.hidden * 2, 0};
  }
  void MakeExperts(int rank) {
    group_.Select(rank);
    auto own = std::make_unique<RankExperts>();
    const int experts = group_.shape().experts_of_rank;
    const FfnShape& shape = model_.shape;
    const WeightOrder gated =
        model_.one_kernel ? WeightOrder::kGateUpInterleaved : WeightOrder::kGateUp256;
    const WeightOrder plain =
        model_.one_kernel ? WeightOrder::kRows128 : PlainOrderFor(experts, shape.hidden);
    for (int i = 0; i < model_.layers; ++i) {
      const auto seed = static_cast<std::uint32_t>(100 + 10 * i + 1000 * rank);
      own->w13.emplace_back(testing::WeightSpec{experts, 2 * shape.intermediate, shape.hidden,
                                                WeightType::kFp8, gated},
                            seed, i == 0);
      own->w2.emplace_back(
          testing::WeightSpec{experts, shape.hidden, shape.intermediate, WeightType::kFp8, plain},
          seed + 5, i == 0);
    }
    own->hidden = DeviceBuffer<std::byte>(slots() * hidden_stride_);
    if (model_.one_kernel) {
      own->workspace = DeviceBuffer<std::byte>(FusedFfnWorkspaceBytes(shape, experts, slots()));
      own->workspace.Fill(0);
    }
    own->sink = DeviceBuffer<std::uint32_t>(1);
    experts_.push_back(std::move(own));
  }

  const Model model_;
  ExchangeGroup group_;
  const int rows_of_expert_;  // on average
  const std::int64_t hidden_stride_;
  std::vector<std::unique_ptr<RankExperts>> experts_;
};

double LayerBench::Error(int rank) {
  group_.Select(rank);
  const RankExperts& own = *experts_[static_cast<std::size_t>(rank)];
  const FfnShape& shape = model_.shape;
  const cudaStream_t stream = group_.stream(rank);
  const int scaled = model_.one_kernel ? kHiddenGroupOfOneKernel : 128;
  const std::int64_t stride = shape.intermediate + shape.intermediate / scaled * 4;
  const DeviceBuffer<double> gated(slots() * 2 * shape.intermediate);
  const DeviceBuffer<std::byte> hidden(slots() * stride);
  const DeviceBuffer<double> wanted(slots() * shape.hidden);
  DeviceBuffer<testing::RowError> errors(slots());
  errors.Fill(0);
  testing::ReferenceGemm(group_.LandedRows(rank), group_.Groups(rank), slots(), own.w13[0].plain(),
                         gated.get(), stream);
  const testing::HiddenRows view = {hidden.get(), stride, shape.intermediate, shape.intermediate,
                                    scaled};
  testing::ReferenceSwiglu(gated.get(), slots(), view, stream);
  testing::ReferenceSecond(view, group_.Groups(rank), slots(), own.w2[0].plain(), wanted.get(),
                           stream);
  testing::CompareRows(Out(rank), wanted.get(), group_.Groups(rank), slots(), shape.hidden,
                       errors.get(), stream);
  Check(cudaStreamSynchronize(stream), "reference");
  testing::RowError sum = {0, 0};
  for (const testing::RowError& row : errors.ToHost()) {
    sum = {sum.error + row.error, sum.reference + row.reference};
  }
  return std::sqrt(sum.error / sum.reference);
}

bool Measure(const Options& options, const Model& model, int ranks, int tokens,
             const std::string& name) {
  Watchdog(60);
  LayerBench bench(model, ranks, tokens);
  ExchangeGroup& group = bench.group();
  for (int r = 0; r < ranks; ++r) bench.Dispatch(r);
  for (int r = 0; r < ranks; ++r) bench.Experts(r, 0);
  for (int r = 0; r < ranks; ++r) bench.Combine(r);
  group.Synchronize();
  double error = 0;
  for (int r = 0; r < ranks; ++r) error = std::max(error, bench.Error(r));
  GroupRig rig(&group);
  const int count = 4 * bench.layers();
  const Figure layer = rig.Chain(count, [&](int r, int i) {
    bench.Dispatch(r);
    bench.Experts(r, i);
    bench.Combine(r);
  });
  const Figure dispatch = rig.Chain(count, [&](int r, int) { bench.Dispatch(r); });
  const Figure experts = rig.Chain(count, [&](int r, int i) { bench.Experts(r, i); });
  const Figure combine = rig.Chain(count, [&](int r, int) { bench.Combine(r); });
  const Figure floor = rig.Chain(count, [&](int r, int i) { bench.ReadWeights(r, i); });
  const bool right = !bench.faulted() && error < 0.01;
  Report(options, name,
         {{"right", right ? 1.0 : 0.0},
          {"us p50", layer.p50},
          {"p99", layer.p99},
          {"dispatch", dispatch.p50},
          {"experts", experts.p50},
          {"combine", combine.p50},
          {"floor: plain read", floor.p50},
          {"peers recorded 2026-11-22", ranks == 4 && tokens == 128 ? model.peers : 0.0},
          {"relative error 1e-3", error * 1e3}});
  return right;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  int devices = 0;
  if (!options.list) Check(cudaGetDeviceCount(&devices), "devices");
  bool right = true;
  for (const Model& model : kModels) {
    for (const int tokens : {128, 64, 16, 1}) {
      const std::string name = std::string(model.name) + ", " + std::to_string(tokens);
      if (!IsWanted(options, name)) continue;
      right = Measure(options, model, std::min(devices, 8), tokens, name) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::cuda::bench

int main(int argc, char** argv) { return switchyard::cuda::bench::Main(argc, argv); }
