// Row codecs: encode gathers rows by a random index. The floor is a copy by a plain kernel that
// moves as many bytes, read and written together.
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/cuda/device_rig.h"
#include "tests/cuda/device_kernels.h"
#include "worker/device/cuda/codec.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::DeviceBuffer;

constexpr std::int64_t kRotatedBytes = std::int64_t{600} << 20;

struct Format {
  const char* name;
  RowFormat format;
  std::int64_t (*data)(std::int64_t hidden);
  std::int64_t (*scales)(std::int64_t hidden);
};
constexpr Format kFormats[] = {
    {"bf16", RowFormat::kBf16, [](std::int64_t h) { return 2 * h; },
     [](std::int64_t) { return std::int64_t{0}; }},
    {"fp8", RowFormat::kFp8, [](std::int64_t h) { return h; },
     [](std::int64_t h) { return h / 128 * 4; }},
    {"fp8_ue8m0", RowFormat::kFp8Ue8m0, [](std::int64_t h) { return h; },
     [](std::int64_t h) { return h / 128; }},
    {"int8", RowFormat::kInt8, [](std::int64_t h) { return h; },
     [](std::int64_t) { return std::int64_t{4}; }},
    {"nvfp4", RowFormat::kNvfp4, [](std::int64_t h) { return h / 2; },
     [](std::int64_t h) { return h / 16; }},
};

struct Shape {
  std::int64_t rows;
  std::int64_t hidden;
};
constexpr Shape kShapes[] = {{128, 7168}, {4096, 7168}, {32768, 2048}};

// Several sets of rows, so that no run finds its input in the L2.
class Bench {
 public:
  Bench(const Format& format, const Shape& shape)
      : format_(format),
        shape_(shape),
        data_stride_((format.data(shape.hidden) + 15) / 16 * 16),
        scale_stride_((format.scales(shape.hidden) + 15) / 16 * 16) {
    const std::int64_t bytes = shape.rows * shape.hidden * 2;
    sets_ = static_cast<int>(std::min<std::int64_t>((kRotatedBytes + bytes - 1) / bytes, 64));
    sets_ = std::max(sets_, 4);
    values_ = DeviceBuffer<std::uint16_t>(sets_ * shape.rows * shape.hidden);
    testing::FillBf16(values_.get(), values_.count(), 3, 4.0F, nullptr);
    data_ = DeviceBuffer<std::byte>(sets_ * shape.rows * data_stride_);
    scales_ =
        DeviceBuffer<std::byte>(std::max<std::int64_t>(sets_ * shape.rows * scale_stride_, 16));
    std::mt19937 random(5);
    std::vector<std::int32_t> index;
    for (std::int64_t i = 0; i < shape.rows; i++) {
      index.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(random()) % shape.rows));
    }
    index_ = DeviceBuffer<std::int32_t>(index);
    Check(cudaDeviceSynchronize(), "fill");
  }

  void Encode(cudaStream_t stream, int i) {
    Check(EncodeRows(format_.format,
                     {Values(i), index_.get(), shape_.rows, shape_.hidden, shape_.hidden}, 700.0F,
                     Encoded(i), stream),
          "EncodeRows");
  }
  void Decode(cudaStream_t stream, int i) {
    Check(DecodeRows(format_.format, Encoded(i), 700.0F,
                     {Values(i), shape_.rows, shape_.hidden, shape_.hidden}, stream),
          "DecodeRows");
  }
  // Moves half of the codec's bytes in and half of them out.
  void Copy(cudaStream_t stream, int i) {
    const auto half = static_cast<std::int64_t>(MovedBytes() / 2) / 16 * 16;
    auto* from = reinterpret_cast<const std::byte*>(Values(i));
    const int other = (i + sets_ / 2) % sets_;
    testing::CopyOnce(from, reinterpret_cast<std::byte*>(Values(other)), half, stream);
  }
  [[nodiscard]] double MovedBytes() const {
    return static_cast<double>(shape_.rows * (2 * shape_.hidden + format_.data(shape_.hidden) +
                                              format_.scales(shape_.hidden)));
  }
  [[nodiscard]] int sets() const { return sets_; }

 private:
  [[nodiscard]] std::uint16_t* Values(int i) const {
    return values_.get() + i % sets_ * shape_.rows * shape_.hidden;
  }
  [[nodiscard]] EncodedRows Encoded(int i) const {
    return {data_.get() + i % sets_ * shape_.rows * data_stride_,
            scales_.get() + i % sets_ * shape_.rows * scale_stride_, data_stride_, scale_stride_};
  }

  Format format_;
  Shape shape_;
  std::int64_t data_stride_;
  std::int64_t scale_stride_;
  int sets_ = 0;
  DeviceBuffer<std::uint16_t> values_;
  DeviceBuffer<std::byte> data_;
  DeviceBuffer<std::byte> scales_;
  DeviceBuffer<std::int32_t> index_;
};

void Measure(const Options& options, const std::string& name, const Format& format,
             const Shape& shape, DeviceRig* rig) {
  Watchdog(30);
  Bench bench(format, shape);
  const Figure copy =
      rig->Chain([&](cudaStream_t s, int i) { bench.Copy(s, i); }, bench.sets(), 50);
  const Figure encode =
      rig->Chain([&](cudaStream_t s, int i) { bench.Encode(s, i); }, bench.sets(), 50);
  const Figure decode =
      rig->Chain([&](cudaStream_t s, int i) { bench.Decode(s, i); }, bench.sets(), 50);
  Report(options, name,
         {{"encode us p50", encode.p50},
          {"p99", encode.p99},
          {"TB/s", bench.MovedBytes() / encode.p50 / 1e6},
          {"decode us p50", decode.p50},
          {"p99", decode.p99},
          {"TB/s", bench.MovedBytes() / decode.p50 / 1e6},
          {"floor: plain copy", copy.p50}});
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  std::optional<DeviceRig> rig;
  if (!options.list) rig.emplace();
  if (!options.list) ReportCeilings(options, &*rig);
  for (const Shape& shape : kShapes) {
    for (const Format& format : kFormats) {
      const std::string name = std::string(format.name) + " " + std::to_string(shape.rows) + "x" +
                               std::to_string(shape.hidden);
      if (IsWanted(options, name)) Measure(options, name, format, shape, &*rig);
    }
  }
  return 0;
}

}  // namespace
}  // namespace switchyard::cuda::bench

int main(int argc, char** argv) { return switchyard::cuda::bench::Main(argc, argv); }
