// Batches of experts through the device seam on a GPU: what an expert engine pays for a step.
//
//   cuda_device_bench [INDEX [decode | prefill ["NAME TOKENS"]]]
//
// A line for each case. "latency": from the call that enqueues a batch to the thread that sees its
// event done, one at a time. "queued": batches behind each other on one stream, the time of all by
// their number. Each with rows in device memory, and with rows and answers in pageable memory, as
// in a ring. Medians. TB/s: all weights, once, in the queued time.
//
// Prefill: whole batches of many tokens, rows in device memory. "call": the host's part.
// "products": the two products by themselves. "floor": the operations at the nominal 1979 (FP8) or
// 989 (BF16) TFLOPS, or weights, rows and answers once at 4.8 TB/s, whichever is longer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/rng.h"
#include "worker/device/cuda/backend/cuda_backend.h"
#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/gemm/prefill_packed.h"

namespace switchyard {
namespace {

constexpr int kRounds = 200;
constexpr int kQueued = 20;

template <typename T>
T OrExit(absl::StatusOr<T> made) {
  if (made.ok()) return *std::move(made);
  std::fprintf(stderr, "%s\n", std::string(made.status().message()).c_str());
  std::exit(1);
}
void OrExit(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

struct Case {
  const char* name;
  MoeShape shape;  // experts: those of this device
  std::uint32_t tokens;
  std::int32_t width;  // experts of a token on this device
  bool fp8;
};
constexpr MoeShape kQwen{.hidden = 2048, .intermediate = 768, .experts = 128, .top_k = 8};
constexpr MoeShape kDeepSeek{.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8};
// Cases of one layer stand together: they share its experts.
constexpr Case kPrefillCases[] = {
    {"qwen3-30b fp8 128 experts", kQwen, 512, 8, true},
    {"qwen3-30b fp8 128 experts", kQwen, 1024, 8, true},
    {"qwen3-30b fp8 128 experts", kQwen, 4096, 8, true},
    {"qwen3-30b fp8 128 experts", kQwen, 16384, 8, true},
    {"qwen3-30b bf16 128 experts", kQwen, 512, 8, false},
    {"qwen3-30b bf16 128 experts", kQwen, 4096, 8, false},
    {"qwen3-30b bf16 128 experts", kQwen, 16384, 8, false},
    {"deepseek-v3 fp8 64 experts", kDeepSeek, 512, 8, true},
    {"deepseek-v3 fp8 64 experts", kDeepSeek, 4096, 8, true},
    {"deepseek-v3 fp8 64 experts", kDeepSeek, 16384, 8, true},
};
constexpr Case kCases[] = {
    {"qwen3-30b fp8 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     true},
    {"qwen3-30b fp8 32 experts x 1",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     16,
     2,
     true},
    {"qwen3-30b bf16 32 experts x 20",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     128,
     5,
     false},
    {"qwen3-30b fp8 32 experts x 256",
     {.hidden = 2048, .intermediate = 768, .experts = 32, .top_k = 8},
     1024,
     8,
     true},
    {"deepseek-v3 fp8 64 experts x 16",
     {.hidden = 7168, .intermediate = 2048, .experts = 64, .top_k = 8},
     256,
     4,
     true},
};

double Microseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}
double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Experts of one layer: E4M3 codes by FP32 scales of blocks, or BF16 values that no narrower code
// holds. Each expert shows another part of the same random values.
class Experts {
 public:
  Experts(CudaBackend& device, const Case& one) {
    const auto size = static_cast<std::size_t>(one.shape.hidden) *
                      static_cast<std::size_t>(one.shape.intermediate);
    const auto blocks = static_cast<std::size_t>(ScaleBlocks(one.shape.hidden) *
                                                 ScaleBlocks(one.shape.intermediate));
    const std::vector<float> scales(blocks, 0.02F);
    constexpr std::size_t kStep = 4096;
    const auto experts = static_cast<std::size_t>(one.shape.experts);
    std::vector<Bf16> values(3 * size + kStep * experts);
    SeededRng rng(7);
    for (Bf16& value : values) {
      const auto code = static_cast<float>(rng.Next() % 31) - 15.0F;
      value = FloatToBf16(one.fp8 ? code : code * 0.0013F);
    }
    std::vector<TableEntry> entries;
    for (std::size_t e = 0; e < experts; ++e) {
      const auto all = std::span<const Bf16>(values).subspan(e * kStep, 3 * size);
      ExpertWeightsView view{.gate = all.first(size),
                             .up = all.subspan(size, size),
                             .down = all.subspan(2 * size, size)};
      if (one.fp8) {
        for (WeightScalesView* of : {&view.gate_scales, &view.up_scales, &view.down_scales}) {
          of->blocks = scales;
        }
        view.inputs = {ActivationFormat::kFp8Group};
        view.middle = {ActivationFormat::kFp8Group};
      }
      entries.push_back(
          {ExpertId{static_cast<std::int32_t>(e)}, OrExit(device.Pack(one.shape, view))});
      weight_bytes_ += entries.back().weights->bytes();
    }
    table_ = OrExit(device.MakeTable(std::move(entries)));
  }

  [[nodiscard]] const ExpertTable* table() const { return table_.get(); }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  std::unique_ptr<ExpertTable> table_;
  std::int64_t weight_bytes_ = 0;
};

class Rig {
 public:
  Rig(CudaBackend& device, const Experts& experts, const Case& one, std::int64_t pairs_max)
      : device_(&device), case_(one), experts_(&experts) {
    workspace_ = OrExit(device.MakeWorkspace(one.shape, pairs_max));
    stream_ = OrExit(device.MakeStream({}));
    event_ = stream_->MakeEvent();
    const WireFormat format = one.fp8 ? kFp8Format : kBf16Format;
    if (one.fp8) codec_ = OrExit(device.MakeCodec({.format = format}));
    const RowBytes bytes = RowBytesOf(format, one.shape.hidden);
    data_bytes_ = one.tokens * static_cast<std::size_t>(bytes.data);
    host_rows_.resize(data_bytes_ + one.tokens * static_cast<std::size_t>(bytes.scales));
    host_out_.resize(one.tokens * static_cast<std::size_t>(one.shape.hidden) * 2);
    rows_ = OrExit(device.Allocate(host_rows_.size(), MemoryKind::kDevice));
    out_ = OrExit(device.Allocate(host_out_.size(), MemoryKind::kDevice));
    MakeRows();
    input_ = {.codec = codec_.get(),
              .rows = rows_->data(),
              .scales = rows_->data() + data_bytes_,
              .count = one.tokens,
              .slots = slots_.data(),
              .weights = weights_.data(),
              .out = out_->data()};
  }

  void Enqueue(bool copies) {
    const CopyPiece in{rows_->data(), host_rows_.data(), host_rows_.size()};
    const CopyPiece back{host_out_.data(), out_->data(), host_out_.size()};
    if (copies) OrExit(stream_->Copy({&in, 1}));
    OrExit(stream_->Run({.experts = experts_->table(),
                         .workspace = workspace_.get(),
                         .inputs = {&input_, 1},
                         .width = case_.width,
                         .combine = CombineUnit::kPerWorker}));
    if (copies) OrExit(stream_->Copy({&back, 1}));
  }
  void Finish() {
    OrExit(stream_->Record(event_.get()));
    while (!event_->done()) {
    }
    OrExit(event_->status());
  }
  double Latency(bool copies, int rounds) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      Enqueue(copies);
      Finish();
      times.push_back(Microseconds(std::chrono::steady_clock::now() - begin));
    }
    return Median(times);
  }
  void Map() {
    mappings_[0] = device_->MapHost(host_rows_);
    mappings_[1] = device_->MapHost(host_out_);
  }
  double Queued(int rounds, int queued) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < queued; ++i) Enqueue(false);
      Finish();
      times.push_back(Microseconds(std::chrono::steady_clock::now() - begin) / queued);
    }
    return Median(times);
  }
  // The host's part of it.
  double Call() {
    std::vector<double> times;
    for (int round = 0; round < 9; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      Enqueue(false);
      times.push_back(Microseconds(std::chrono::steady_clock::now() - begin));
      Finish();
    }
    return Median(times);
  }
  [[nodiscard]] const std::vector<std::int32_t>& slots() const { return slots_; }
  // Rows whose answer holds a NaN, of the last batch.
  [[nodiscard]] std::uint32_t nan_rows() const { return input_.nan_rows; }

 private:
  // Rows of codes that are no NaN, each for `width` experts that differ.
  void MakeRows() {
    for (std::size_t i = 0; i < data_bytes_; ++i) {
      host_rows_[i] = static_cast<std::byte>(0x30U + (rng_.Next() & 0x8fU));
    }
    const float scale = 0.01F;
    for (std::size_t at = data_bytes_; at < host_rows_.size(); at += sizeof(scale)) {
      std::memcpy(host_rows_.data() + at, &scale, sizeof(scale));
    }
    const auto experts = static_cast<std::uint64_t>(case_.shape.experts);
    for (std::uint32_t token = 0; token < case_.tokens; ++token) {
      const std::uint64_t first = rng_.Next() % experts;
      for (std::int32_t k = 0; k < case_.width; ++k) {
        slots_.push_back(
            static_cast<std::int32_t>((first + 3 * static_cast<std::uint64_t>(k)) % experts));
        weights_.push_back(0.125F);
      }
    }
    constexpr std::size_t kPiece = std::size_t{16} << 20;
    for (std::size_t at = 0; at < host_rows_.size(); at += kPiece) {
      const std::size_t bytes = std::min(kPiece, host_rows_.size() - at);
      const CopyPiece in{rows_->data() + at, host_rows_.data() + at, bytes};
      OrExit(stream_->Copy({&in, 1}));
      Finish();
    }
  }

  CudaBackend* const device_;
  const Case& case_;
  const Experts* const experts_;
  SeededRng rng_{7};
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceEvent> event_;
  std::unique_ptr<Codec> codec_;
  std::size_t data_bytes_ = 0;
  std::vector<std::byte> host_rows_;
  std::vector<std::byte> host_out_;
  std::unique_ptr<HostMapping> mappings_[2];
  std::unique_ptr<Buffer> rows_;
  std::unique_ptr<Buffer> out_;
  std::vector<std::int32_t> slots_;
  std::vector<float> weights_;
  ExpertInput input_;
};

void OrExit(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

// The two products of prefill by themselves, over random rows for the experts of `slots`.
class Products {
 public:
  Products(CudaBackend& device, const Experts& experts, const Case& one,
           const std::vector<std::int32_t>& slots)
      : device_(&device),
        shape_(one.shape),
        pairs_(static_cast<std::int64_t>(slots.size())),
        value_bytes_(one.fp8 ? 1 : 2) {
    const auto& table = static_cast<const CudaTable&>(*experts.table());
    const auto route = one.fp8 ? cuda::Route::kFp8 : cuda::Route::kBf16;
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
            .scale_stride = scale_stride};
  }
  void Launch(cudaStream_t stream) {
    OrExit(cuda::LaunchPrefillHidden(rows_, groups_, gate_up_,
                                     {.rows = const_cast<std::byte*>(hidden_.rows),
                                      .stride = hidden_.stride,
                                      .scales = const_cast<float*>(hidden_.scales),
                                      .scale_stride = hidden_.scale_stride},
                                     scratch_, stream));
    OrExit(cuda::LaunchPrefillSums(hidden_, groups_, down_, {.out = sums_, .stride = down_.n},
                                   scratch_, stream));
  }

  CudaBackend* const device_;
  const MoeShape shape_;
  const std::int64_t pairs_;
  const std::int64_t value_bytes_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  cuda::PackedWeights gate_up_;
  cuda::PackedWeights down_;
  cuda::GemmGroups groups_;
  cuda::PrefillScratch scratch_;
  cuda::PrefillRows rows_;
  cuda::PrefillRows hidden_;
  float* sums_ = nullptr;
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
  std::optional<Experts> experts;
  const char* of = nullptr;
  for (const Case& one : kPrefillCases) {
    if (!only.empty() && absl::StrCat(one.name, " ", one.tokens) != only) continue;
    if (of == nullptr || std::strcmp(of, one.name) != 0) {
      experts.reset();
      experts.emplace(device, one);
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
    const double floor = std::max(tera / (one.fp8 ? 1979.0 : 989.0), bytes / 4.8e6);
    const double products = Products(device, *experts, one, rig.slots()).Time();
    std::printf("%-34s %8u %10.1f %10.1f %10.1f %12.0f %8.0f %10.1f %10.1f%s\n", one.name,
                one.tokens, latency, queued, rig.Call(), one.tokens / queued * 1e6, tera / queued,
                products, floor, rig.nan_rows() == 0 ? "" : "  NaN in the answers");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  using switchyard::OrExit;
  const int index = argc > 1 ? std::atoi(argv[1]) : 0;
  const std::string part = argc > 2 ? argv[2] : "";
  const auto begin = std::chrono::steady_clock::now();
  const auto device = OrExit(switchyard::CudaBackend::Create({.index = index}));
  std::printf("start and self-test %.0f ms\n",
              switchyard::Microseconds(std::chrono::steady_clock::now() - begin) / 1000);
  if (part != "prefill") switchyard::RunDecode(*device);
  if (part != "decode") switchyard::RunPrefill(*device, argc > 3 ? argv[3] : "");
  return 0;
}
