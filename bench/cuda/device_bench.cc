// Batches of experts through the device seam on a GPU: what an expert engine pays for a step.
//
//   cuda_device_bench [INDEX]
//
// A line for each case. "latency": from the call that enqueues a batch to the thread that sees its
// event done, one at a time. "queued": batches behind each other on one stream, the time of all by
// their number. Each with rows in device memory, and with rows and answers in pageable memory, as
// in a ring. Medians. TB/s: all weights, once, in the queued time.
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

#include "core/rng.h"
#include "worker/device/cuda/backend/cuda_backend.h"

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

class Rig {
 public:
  Rig(CudaBackend& device, const Case& one) : device_(&device), case_(one) {
    MakeTable();
    workspace_ = OrExit(device.MakeWorkspace(one.shape, 8192));
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
    OrExit(stream_->Run({.experts = table_.get(),
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
  double Latency(bool copies) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
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
  double Queued() {
    std::vector<double> times;
    for (int round = 0; round < 20; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kQueued; ++i) Enqueue(false);
      Finish();
      times.push_back(Microseconds(std::chrono::steady_clock::now() - begin) / kQueued);
    }
    return Median(times);
  }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }
  // Rows whose answer holds a NaN, of the last batch.
  [[nodiscard]] std::uint32_t nan_rows() const { return input_.nan_rows; }

 private:
  // E4M3 codes by FP32 scales of blocks, or BF16 values that no narrower code holds.
  void MakeTable() {
    const auto size = static_cast<std::size_t>(case_.shape.hidden) *
                      static_cast<std::size_t>(case_.shape.intermediate);
    const auto blocks = static_cast<std::size_t>(ScaleBlocks(case_.shape.hidden) *
                                                 ScaleBlocks(case_.shape.intermediate));
    const std::vector<float> scales(blocks, 0.02F);
    std::vector<TableEntry> entries;
    for (std::int32_t e = 0; e < case_.shape.experts; ++e) {
      std::vector<Bf16> values(3 * size);
      for (Bf16& value : values) {
        const auto code = static_cast<float>(rng_.Next() % 31) - 15.0F;
        value = FloatToBf16(case_.fp8 ? code : code * 0.0013F);
      }
      const std::span<const Bf16> all(values);
      ExpertWeightsView view{.gate = all.first(size),
                             .up = all.subspan(size, size),
                             .down = all.subspan(2 * size, size)};
      if (case_.fp8) {
        for (WeightScalesView* of : {&view.gate_scales, &view.up_scales, &view.down_scales}) {
          of->blocks = scales;
        }
        view.inputs = {ActivationFormat::kFp8Group};
        view.middle = {ActivationFormat::kFp8Group};
      }
      entries.push_back({ExpertId{e}, OrExit(device_->Pack(case_.shape, view))});
      weight_bytes_ += entries.back().weights->bytes();
    }
    table_ = OrExit(device_->MakeTable(std::move(entries)));
  }
  // Rows of codes that are no NaN, each for `width` experts that differ.
  void MakeRows() {
    for (std::size_t i = 0; i < data_bytes_; ++i) {
      host_rows_[i] = static_cast<std::byte>(0x30U + rng_.Next() % 16);
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
    const CopyPiece in{rows_->data(), host_rows_.data(), host_rows_.size()};
    OrExit(stream_->Copy({&in, 1}));
    Finish();
  }

  CudaBackend* const device_;
  const Case& case_;
  SeededRng rng_{7};
  std::unique_ptr<ExpertTable> table_;
  std::int64_t weight_bytes_ = 0;
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

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  using switchyard::OrExit;
  const int index = argc > 1 ? std::atoi(argv[1]) : 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto device = OrExit(switchyard::CudaBackend::Create({.index = index}));
  std::printf("start and self-test %.0f ms\n",
              switchyard::Microseconds(std::chrono::steady_clock::now() - begin) / 1000);
  std::printf("%-34s %12s %12s %12s %12s %10s\n", "us a batch", "latency", "pageable", "mapped",
              "queued", "TB/s");
  for (const switchyard::Case& one : switchyard::kCases) {
    switchyard::Rig rig(*device, one);
    const double latency = rig.Latency(false);
    const double pageable = rig.Latency(true);
    rig.Map();
    const double mapped = rig.Latency(true);
    const double queued = rig.Queued();
    std::printf("%-34s %12.1f %12.1f %12.1f %12.1f %10.2f%s\n", one.name, latency, pageable, mapped,
                queued, static_cast<double>(rig.weight_bytes()) / queued / 1e6,
                rig.nan_rows() == 0 ? "" : "  NaN in the answers");
    std::fflush(stdout);
  }
  return 0;
}
