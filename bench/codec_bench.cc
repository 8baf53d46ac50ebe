// Codecs against memcpy. A codec reads and writes some bytes of a row, BF16 on one side and the
// wire on the other: GB/s counts both, and memcpy_GB/s is what memcpy makes of as many in the same
// iteration. `ratio` is the median quotient of their times; 1 is the speed of memory. scalar_GB/s
// and `speedup` are those of the scalar kernels, in turn with the others.
//
//   codec_bench --benchmark_filter='encode/fp8/.*'
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/copy_floor.h"
#include "bench/measure.h"
#include "core/rng.h"
#include "worker/device/cpu/codec/codec_bf16.h"
#include "worker/device/cpu/codec/codec_scaled.h"

namespace switchyard::bench {
namespace {

constexpr float kGlobalScale = 672.0F;

struct Shape {
  std::size_t rows;
  std::size_t hidden;
};

// BF16 between 2^-2 and 2^2 in size, of both signs. Never zeros: they flatter the clock.
std::vector<Bf16> RandomRows(std::size_t count) {
  SeededRng rng(1);
  std::vector<Bf16> x(count);
  for (Bf16& value : x) value = static_cast<Bf16>((rng.Next() & 0x81ffU) + 0x3e80U);
  return x;
}

std::unique_ptr<HostCodec> MakeCodec(const CodecKernels& kernels, const WireFormat& format) {
  if (format == kBf16Format) return std::make_unique<Bf16Codec>();
  const float global_scale = format.scale == ScaleKind::kE4m3 ? kGlobalScale : 1.0F;
  return OrExit(ScaledCodec::Create(kernels, {.format = format, .global_scale = global_scale}));
}

// Rows with their wire form, and a codec that goes either way between them.
class Bench {
 public:
  Bench(const WireFormat& format, const Shape& shape)
      : hidden_(static_cast<std::int64_t>(shape.hidden)),
        x_(RandomRows(shape.rows * shape.hidden)),
        out_(x_.size()) {
    for (std::size_t row = 0; row < shape.rows; ++row) {
      rows_.push_back(x_.data() + row * shape.hidden);
    }
    const RowBytes bytes = RowBytesOf(format, hidden_);
    data_.resize(shape.rows * static_cast<std::size_t>(bytes.data));
    scales_.resize(shape.rows * static_cast<std::size_t>(bytes.scales));
  }
  double Encode(const HostCodec& codec) {
    return SecondsOf([&] {
      codec.Encode(rows_, hidden_, data_.data(), scales_.data());
      benchmark::ClobberMemory();
    });
  }
  double Decode(const HostCodec& codec) {
    return SecondsOf([&] {
      codec.Decode(data_.data(), scales_.data(), static_cast<std::int64_t>(rows_.size()), hidden_,
                   out_.data());
      benchmark::ClobberMemory();
    });
  }
  [[nodiscard]] std::size_t bytes() const {
    return x_.size() * sizeof(Bf16) + data_.size() + scales_.size();
  }

 private:
  std::int64_t hidden_;
  std::vector<Bf16> x_;
  std::vector<Bf16> out_;
  std::vector<const Bf16*> rows_;
  std::vector<std::byte> data_;
  std::vector<std::byte> scales_;
};

void BM_Codec(benchmark::State& state, const WireFormat& format, bool encode) {
  const Shape shape = {static_cast<std::size_t>(state.range(0)),
                       static_cast<std::size_t>(state.range(1))};
  const auto codec = MakeCodec(ChooseCodecKernels(DetectCpuFeatures()), format);
  const auto scalar = MakeCodec(kScalarCodecKernels, format);
  Bench bench(format, shape);
  CopyFloor floor(bench.bytes() / 2);  // memcpy reads and writes each byte
  const auto run = [&](const HostCodec& with) {
    return encode ? bench.Encode(with) : bench.Decode(with);
  };
  bench.Encode(*codec);
  run(*codec);
  std::vector<double> seconds;
  std::vector<double> scalars;
  std::vector<double> copies;
  for (auto unused : state) {
    copies.push_back(SecondsOf([&] { floor.Copy(); }));
    seconds.push_back(run(*codec));
    scalars.push_back(run(*scalar));
    state.SetIterationTime(seconds.back());
  }
  const auto bytes = static_cast<double>(bench.bytes());
  state.counters["GB/s"] = bytes / Median(seconds) / 1e9;
  state.counters["scalar_GB/s"] = bytes / Median(scalars) / 1e9;
  state.counters["memcpy_GB/s"] = bytes / Median(copies) / 1e9;
  state.counters["ratio"] = MedianRatio(seconds, copies);
  state.counters["speedup"] = MedianRatio(scalars, seconds);
}

void Register(const NamedWireFormat& named, bool encode) {
  const std::string name = std::string(encode ? "encode/" : "decode/") + named.name;
  benchmark::RegisterBenchmark(
      name.c_str(),
      [format = named.format, encode](benchmark::State& state) { BM_Codec(state, format, encode); })
      ->ArgNames({"rows", "hidden"})
      ->ArgsProduct({{1, 128, 4096}, {7168}})
      ->Args({128, 2048})
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.05);
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  for (const bool encode : {true, false}) {
    for (const switchyard::NamedWireFormat& named : switchyard::WireFormats()) {
      switchyard::bench::Register(named, encode);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
