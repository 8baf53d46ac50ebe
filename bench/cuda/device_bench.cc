// Batches of experts through the device seam on a GPU: what an expert engine pays for a step.
//
//   cuda_device_bench [INDEX [decode | prefill ["NAME TOKENS"] | beside]]
//
// A line for each case. "latency": from the call that enqueues a batch to the thread that sees its
// event done, one at a time. "queued": batches behind each other on one stream, the time of all by
// their number. Each with rows in device memory, and with rows and answers in pageable memory, as
// in a ring. Medians. TB/s: all weights, once, in the queued time.
//
// Prefill: whole batches of many tokens, rows in device memory. "call": the host's part.
// "products": the two products by themselves. "floor": the operations at the nominal 1979 (FP8) or
// 989 (BF16) TFLOPS, or weights, rows and answers once at 4.8 TB/s, whichever is longer.
//
// Beside: a decode batch, one at a time, while batches of prefill run behind each other on a stream
// of their class. "alone": without them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "bench/cuda/expert_rig.h"
#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/gemm/prefill_packed.h"

namespace switchyard::bench {
namespace {

constexpr int kRounds = 200;
constexpr int kQueued = 20;

constexpr MoeShape kQwen{.hidden = 2048, .intermediate = 768, .experts = 128, .top_k = 8};
constexpr MoeShape kDeepSeek{.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8};
// Cases of one layer stand together: they share its experts.
constexpr Case kPrefillCases[] = {
    {"qwen3-30b fp8 128 experts", kQwen, 512, 8, Layer::kFp8},
    {"qwen3-30b fp8 128 experts", kQwen, 1024, 8, Layer::kFp8},
    {"qwen3-30b fp8 128 experts", kQwen, 4096, 8, Layer::kFp8},
    {"qwen3-30b fp8 128 experts", kQwen, 16384, 8, Layer::kFp8},
    {"qwen3-30b int8 128 experts", kQwen, 512, 8, Layer::kInt8},
    {"qwen3-30b int8 128 experts", kQwen, 4096, 8, Layer::kInt8},
    {"qwen3-30b int8 128 experts", kQwen, 16384, 8, Layer::kInt8},
    {"qwen3-30b nvfp4 128 experts", kQwen, 512, 8, Layer::kNvfp4},
    {"qwen3-30b nvfp4 128 experts", kQwen, 4096, 8, Layer::kNvfp4},
    {"qwen3-30b w4afp8 128 experts", kQwen, 512, 8, Layer::kW4Afp8},
    {"qwen3-30b w4afp8 128 experts", kQwen, 4096, 8, Layer::kW4Afp8},
    {"qwen3-30b bf16 128 experts", kQwen, 512, 8, Layer::kBf16},
    {"qwen3-30b bf16 128 experts", kQwen, 4096, 8, Layer::kBf16},
    {"qwen3-30b bf16 128 experts", kQwen, 16384, 8, Layer::kBf16},
    {"deepseek-v3 fp8 64 experts", kDeepSeek, 512, 8, Layer::kFp8},
    {"deepseek-v3 fp8 64 experts", kDeepSeek, 4096, 8, Layer::kFp8},
    {"deepseek-v3 fp8 64 experts", kDeepSeek, 16384, 8, Layer::kFp8},
    {"deepseek-v3 int8 64 experts", kDeepSeek, 512, 8, Layer::kInt8},
    {"deepseek-v3 int8 64 experts", kDeepSeek, 4096, 8, Layer::kInt8},
    {"deepseek-v3 int8 64 experts", kDeepSeek, 16384, 8, Layer::kInt8},
};
constexpr Case kCases[] = {
    {"qwen3-30b fp8 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     Layer::kFp8},
    {"qwen3-30b fp8 32 experts x 1",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     16,
     2,
     Layer::kFp8},
    {"qwen3-30b bf16 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     Layer::kBf16},
    {"qwen3-30b int8 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     Layer::kInt8},
    {"qwen3-30b nvfp4 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     Layer::kNvfp4},
    {"qwen3-30b w4afp8 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     Layer::kW4Afp8},
    {"qwen3-30b fp8 32 experts x 256",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     1024,
     8,
     Layer::kFp8},
    {"deepseek-v3 fp8 64 experts x 16",
     {.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8},
     256,
     4,
     Layer::kFp8},
    {"deepseek-v3 int8 64 experts x 16",
     {.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8},
     256,
     4,
     Layer::kInt8},
    {"deepseek-v3 nvfp4 64 experts x 16",
     {.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8},
     256,
     4,
     Layer::kNvfp4},
    {"deepseek-v3 w4afp8 64 experts x 16",
     {.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8},
     256,
     4,
     Layer::kW4Afp8},
};

// The two products of prefill by themselves, over random rows for the experts of `slots`.
class Products {
 public:
  Products(CudaBackend& device, const Experts& experts, const Case& one,
           const std::vector<std::int32_t>& slots)
      : device_(&device),
        shape_(one.shape),
        pairs_(static_cast<std::int64_t>(slots.size())),
        int8_(one.layer == Layer::kInt8),
        value_bytes_(one.layer == Layer::kBf16 ? 2 : 1) {
    const auto& table = static_cast<const CudaTable&>(*experts.table());
    const auto route = int8_                      ? cuda::Route::kInt8
                       : one.layer == Layer::kFp8 ? cuda::Route::kFp8
                                                  : cuda::Route::kBf16;
    gate_up_ = table.Weights(route, Matrix::kGateUp);
    gate_up_.n = std::int64_t{2} * shape_.intermediate;
    gate_up_.k = shape_.hidden;
    down_ = table.Weights(route, Matrix::kDown);
    down_.n = shape_.hidden;
    down_.k = shape_.intermediate;
    MakeGroups(slots);
    rows_ = MakeRows(shape_.hidden);
    hidden_ = MakeRows(shape_.intermediate);
    sums_ = reinterpret_cast<float*>(Take(pairs_ * shape_.hidden * 4));
    if (int8_) gate_up_sums_ = reinterpret_cast<float*>(Take(pairs_ * gate_up_.n * 4));
  }

  double Time() {
    constexpr int kRuns = 6;
    cudaStream_t stream = nullptr;
    cudaEvent_t events[2] = {};
    OrExit(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events) OrExit(cudaEventCreate(&event));
    std::vector<double> times;
    for (int round = 0; round < 7; ++round) {
      OrExit(cudaEventRecord(events[0], stream));
      for (int i = 0; i < kRuns; ++i) Launch(stream);
      OrExit(cudaEventRecord(events[1], stream));
      OrExit(cudaStreamSynchronize(stream));
      float milliseconds = 0;
      OrExit(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
      times.push_back(static_cast<double>(milliseconds) * 1e3 / kRuns);
    }
    for (const cudaEvent_t event : events) OrExit(cudaEventDestroy(event));
    OrExit(cudaStreamDestroy(stream));
    return Median(times);
  }

 private:
  std::byte* Take(std::int64_t bytes) {
    buffers_.push_back(
        OrExit(device_->Allocate(static_cast<std::size_t>(bytes), MemoryKind::kDevice)));
    return buffers_.back()->data();
  }
  void MakeGroups(const std::vector<std::int32_t>& slots) {
    const auto experts = static_cast<std::size_t>(shape_.experts);
    std::vector<std::int32_t> lists(2 * experts +
                                    1);  // counts, offsets, the word of PrefillScratch
    for (const std::int32_t slot : slots) ++lists[static_cast<std::size_t>(slot)];
    for (std::size_t e = 1; e < experts; ++e) {
      lists[experts + e] = lists[experts + e - 1] + lists[e - 1];
    }
    auto* const to =
        reinterpret_cast<std::int32_t*>(Take(static_cast<std::int64_t>(lists.size()) * 4));
    OrExit(cudaMemcpy(to, lists.data(), lists.size() * 4, cudaMemcpyHostToDevice));
    groups_ = {.counts = to, .offsets = to + experts, .groups = shape_.experts};
    scratch_.units_taken = reinterpret_cast<std::uint32_t*>(to + 2 * experts);
  }
  cuda::PrefillRows MakeRows(std::int64_t width) {
    constexpr std::int64_t kScalesBehind = 136;
    const std::int64_t stride = width * value_bytes_;
    const std::int64_t scale_stride = pairs_ + kScalesBehind;
    std::byte* const rows = Take(pairs_ * stride);
    SeededRng rng(3);
    std::vector<std::byte> values(static_cast<std::size_t>(stride) * 64);
    for (std::byte& value : values) value = static_cast<std::byte>(0x30U + (rng.Next() & 0x8fU));
    const auto piece = static_cast<std::int64_t>(values.size());
    for (std::int64_t at = 0; at < pairs_ * stride; at += piece) {
      const auto bytes = static_cast<std::size_t>(std::min(piece, pairs_ * stride - at));
      OrExit(cudaMemcpy(rows + at, values.data(), bytes, cudaMemcpyHostToDevice));
    }
    const std::vector<float> scales(static_cast<std::size_t>(scale_stride * (width / 128)), 0.01F);
    auto* const to = reinterpret_cast<float*>(Take(static_cast<std::int64_t>(scales.size()) * 4));
    OrExit(cudaMemcpy(to, scales.data(), scales.size() * 4, cudaMemcpyHostToDevice));
    return {.rows = rows,
            .stride = stride,
            .count = pairs_,
            .scales = to,
            .scale_stride = int8_ ? 1 : scale_stride};
  }
  // INT8 makes no h: its rounding takes whole rows.
  void LaunchFirst(cudaStream_t stream) {
    if (int8_) {
      OrExit(cuda::LaunchPrefillSums(rows_, groups_, gate_up_,
                                     {.out = gate_up_sums_, .stride = gate_up_.n}, scratch_,
                                     stream));
      return;
    }
    OrExit(cuda::LaunchPrefillHidden(rows_, groups_, gate_up_,
                                     {.rows = const_cast<std::byte*>(hidden_.rows),
                                      .stride = hidden_.stride,
                                      .scales = const_cast<float*>(hidden_.scales),
                                      .scale_stride = hidden_.scale_stride},
                                     scratch_, stream));
  }
  void Launch(cudaStream_t stream) {
    LaunchFirst(stream);
    OrExit(cuda::LaunchPrefillSums(hidden_, groups_, down_, {.out = sums_, .stride = down_.n},
                                   scratch_, stream));
  }

  CudaBackend* const device_;
  const MoeShape shape_;
  const std::int64_t pairs_;
  const bool int8_;
  const std::int64_t value_bytes_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  cuda::PackedWeights gate_up_;
  cuda::PackedWeights down_;
  cuda::GemmGroups groups_;
  cuda::PrefillScratch scratch_;
  cuda::PrefillRows rows_;
  cuda::PrefillRows hidden_;
  float* sums_ = nullptr;
  float* gate_up_sums_ = nullptr;
};

void RunDecode(CudaBackend& device) {
  std::printf("%-34s %12s %12s %12s %12s %10s\n", "us a batch", "latency", "pageable", "mapped",
              "queued", "TB/s");
  for (const Case& one : kCases) {
    const Experts experts(device, one);
    Rig rig(device, experts, one, 8192);
    const double latency = rig.Latency(false, kRounds);
    const double pageable = rig.Latency(true, kRounds);
    rig.Map();
    const double mapped = rig.Latency(true, kRounds);
    const double queued = rig.Queued(20, kQueued);
    std::printf("%-34s %12.1f %12.1f %12.1f %12.1f %10.2f%s\n", one.name, latency, pageable, mapped,
                queued, static_cast<double>(experts.weight_bytes()) / queued / 1e6,
                rig.nan_rows() == 0 ? "" : "  NaN in the answers");
    std::fflush(stdout);
  }
}

void RunPrefill(CudaBackend& device, const std::string& only) {
  std::printf("%-34s %8s %10s %10s %10s %12s %8s %10s %10s\n", "prefill, us a batch", "tokens",
              "latency", "queued", "call", "tokens/s", "TFLOPS", "products", "floor");
  std::unique_ptr<Experts> experts;
  const char* of = nullptr;
  for (const Case& one : kPrefillCases) {
    if (!only.empty() && absl::StrCat(one.name, " ", one.tokens) != only) continue;
    if (of == nullptr || std::strcmp(of, one.name) != 0) {
      experts.reset();
      experts = std::make_unique<Experts>(device, one);
      of = one.name;
    }
    const auto pairs = static_cast<std::int64_t>(one.tokens) * one.width;
    Rig rig(device, *experts, one, pairs);
    const double latency = rig.Latency(false, 11);
    const double queued = rig.Queued(7, 6);
    const double tera =
        6.0 * static_cast<double>(pairs) * one.shape.hidden * one.shape.intermediate / 1e6;
    const double bytes =
        static_cast<double>(experts->weight_bytes()) + 3.0 * one.tokens * one.shape.hidden;
    const double floor =
        std::max(tera / (one.layer == Layer::kBf16 ? 989.0 : 1979.0), bytes / 4.8e6);
    // The narrow weights have no products of prefill.
    const bool narrow = one.layer == Layer::kNvfp4 || one.layer == Layer::kW4Afp8;
    const double products = narrow ? 0 : Products(device, *experts, one, rig.slots()).Time();
    std::printf("%-34s %8u %10.1f %10.1f %10.1f %12.0f %8.0f %10.1f %10.1f%s\n", one.name,
                one.tokens, latency, queued, rig.Call(), one.tokens / queued * 1e6, tera / queued,
                products, floor, rig.nan_rows() == 0 ? "" : "  NaN in the answers");
    std::fflush(stdout);
  }
}

struct Beside {
  std::uint32_t tokens;
  std::int64_t pairs;  // of a pass
};

void RunBeside(CudaBackend& device) {
  constexpr Beside kPrefills[] = {{1024, 4096}, {1024, 8192}, {4096, 32768}, {8192, 65536}};
  constexpr Case kDecodes[] = {
      {"qwen3-30b fp8 128 experts, 128 tokens", kQwen, 128, 8, Layer::kFp8},
      {"deepseek-v3 fp8 64 experts, 128 tokens", kDeepSeek, 128, 8, Layer::kFp8}};
  std::printf("%-40s %8s %8s %10s %10s %10s %14s\n", "decode beside prefill, us", "tokens", "pairs",
              "alone", "p50", "p90", "prefill batch");
  for (const Case& one : kDecodes) {
    const Experts experts(device, one);
    Rig decode(device, experts, one, 8192);
    const double alone = decode.Latency(false, 50);
    for (const Beside& beside : kPrefills) {
      Case large = one;
      large.tokens = beside.tokens;
      Rig prefill(device, experts, large, beside.pairs, WorkClass::kPrefill);
      std::vector<double> times;
      const int queued = static_cast<int>(65536 / large.tokens);
      const auto begin = std::chrono::steady_clock::now();
      for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < queued; ++i) prefill.Enqueue(false);
        prefill.Record();
        while (!prefill.done()) times.push_back(decode.Latency(false, 1));
      }
      const double batch = Microseconds(std::chrono::steady_clock::now() - begin) / (3.0 * queued);
      std::sort(times.begin(), times.end());
      std::printf("%-40s %8u %8lld %10.1f %10.1f %10.1f %14.1f\n", one.name, beside.tokens,
                  static_cast<long long>(beside.pairs), alone, times[times.size() / 2],
                  times[times.size() * 9 / 10], batch);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  using switchyard::bench::OrExit;
  const int index = argc > 1 ? std::atoi(argv[1]) : 0;
  const std::string part = argc > 2 ? argv[2] : "";
  const auto begin = std::chrono::steady_clock::now();
  const auto device = OrExit(switchyard::CudaBackend::Create({.index = index}));
  std::printf("start and self-test %.0f ms\n",
              switchyard::bench::Microseconds(std::chrono::steady_clock::now() - begin) / 1000);
  const auto wants = [&part](const char* name) { return part.empty() || part == name; };
  if (wants("decode")) switchyard::bench::RunDecode(*device);
  if (wants("prefill")) switchyard::bench::RunPrefill(*device, argc > 3 ? argv[3] : "");
  if (wants("beside")) switchyard::bench::RunBeside(*device);
  return 0;
}
