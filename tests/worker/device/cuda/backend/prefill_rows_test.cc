// Rows through the products of prefill on a GPU: they keep the bits that the products of decode
// give them, in batches of any size, and are those of the CPU. Skipped, with the reason, where
// there is no GPU.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/backend/cuda_fixture.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cuda/backend/cuda_backend.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::GaussianBf16;
using testing::OkOrAbort;

constexpr Duration kLong = std::chrono::seconds(20);
constexpr std::uint32_t kRows = 4096;
constexpr std::int32_t kWidth = 4;
constexpr std::byte kPoison{0xfe};

enum class Values : std::uint8_t {
  kGaussian,
  kCodes,  // of E4M3, with scales of blocks
  kInt4,   // with scales of 128 k
  kE2m1,   // with one scale
  kMixed,  // kInt4 and kCodes, each of every other expert
};

struct Family {
  std::string name;
  MoeShape shape;
  Values values = Values::kGaussian;
  bool biased = false;  // sums are finished by scales of outputs and biases
  ActivationFormat rounding = ActivationFormat::kBf16;
  WireFormat wire = kBf16Format;
};

// One layer with its rows, the same on every device.
class Layer {
 public:
  Layer(DeviceBackend& device, const Family& family) : device_(&device), family_(family) {
    SeededRng rng(17);
    const auto size = static_cast<std::size_t>(family.shape.hidden) *
                      static_cast<std::size_t>(family.shape.intermediate);
    std::vector<TableEntry> entries;
    for (std::int32_t e = 0; e < family.shape.experts; ++e) {
      std::vector<Bf16> values = GaussianBf16(3 * size, 0.04, rng);
      std::vector<float> scales(4096);
      for (float& scale : scales) scale = static_cast<float>(0.5 + rng.Uniform()) * 0.01F;
      const Values kind = family.values != Values::kMixed ? family.values
                          : e % 2 == 0                    ? Values::kInt4
                                                          : Values::kCodes;
      if (kind != Values::kGaussian) {
        for (Bf16& value : values) value = FloatToBf16(CodeOf(kind, rng));
      }
      entries.push_back(
          {ExpertId{e}, OkOrAbort(device.Pack(family.shape, View(kind, values, scales)))});
    }
    table_ = OkOrAbort(device.MakeTable(std::move(entries)));
    MakeRows(rng);
  }

  // The answers to the rows from `first` on, each row for itself: FP32 rows of its first expert.
  [[nodiscard]] std::vector<float> PerExpert(std::uint32_t first, std::uint32_t count) {
    std::vector<std::int32_t> slots;
    for (std::uint32_t r = first; r < first + count; ++r) slots.push_back(SlotsOf(r)[0]);
    return Run(first, count, slots, 1, CombineUnit::kPerExpert, OutputDtype::kF32, nullptr);
  }
  // Their sums over all experts.
  [[nodiscard]] std::vector<float> PerWorker(std::uint32_t first, std::uint32_t count,
                                             ExpertAmax* amax = nullptr) {
    const std::span<const std::int32_t> slots = SlotsOf(first);
    return Run(first, count, {slots.begin(), slots.begin() + count * kWidth}, kWidth,
               CombineUnit::kPerWorker, OutputDtype::kBf16, amax);
  }

 private:
  static float CodeOf(Values kind, SeededRng& rng) {
    constexpr float kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6};
    if (kind == Values::kCodes) return static_cast<float>(rng.Below(31)) - 15.0F;
    if (kind == Values::kInt4) return static_cast<float>(rng.Below(16)) - 8.0F;
    // Sixteen values of one scale may begin anywhere: all have the same.
    return kE2m1[rng.Below(15)] * 0.03125F;
  }
  [[nodiscard]] ExpertWeightsView View(Values kind, const std::vector<Bf16>& values,
                                       const std::vector<float>& scales) const {
    const std::size_t size = values.size() / 3;
    const std::span<const Bf16> all(values);
    ExpertWeightsView view{.gate = all.first(size),
                           .up = all.subspan(size, size),
                           .down = all.subspan(2 * size, size)};
    const std::span<const float> some(scales);
    const MoeShape& shape = family_.shape;
    const auto hidden = static_cast<std::size_t>(shape.hidden);
    const auto middle = static_cast<std::size_t>(shape.intermediate);
    if (kind == Values::kInt4 && !family_.biased) {
      const auto groups = [](std::int64_t outputs, std::int64_t k) {
        return static_cast<std::size_t>(outputs * ScaleBlocks(k));
      };
      view.gate_scales.groups = view.up_scales.groups =
          some.first(groups(shape.intermediate, shape.hidden));
      view.down_scales.groups = some.first(groups(shape.hidden, shape.intermediate));
    }
    if (kind == Values::kCodes && !family_.biased) {
      const auto blocks =
          static_cast<std::size_t>(ScaleBlocks(shape.hidden) * ScaleBlocks(shape.intermediate));
      view.gate_scales.blocks = some.first(blocks);
      view.up_scales.blocks = some.subspan(blocks, blocks);
      view.down_scales.blocks = some.subspan(2 * blocks, blocks);
    }
    if (family_.biased) {
      view.gate_scales.channels = some.first(middle);
      view.up_scales.channels = some.subspan(7, middle);
      view.down_scales.channels = some.subspan(11, hidden);
      view.gate_bias = some.subspan(100, middle);
      view.up_bias = some.subspan(110, middle);
      view.down_bias = some.subspan(120, hidden);
    }
    view.inputs = {family_.rounding};
    view.middle = {family_.rounding};
    return view;
  }
  void MakeRows(SeededRng& rng) {
    const auto hidden = static_cast<std::size_t>(family_.shape.hidden);
    const std::vector<Bf16> x = GaussianBf16(kRows * hidden, 1.0, rng);
    const WireFormat format = family_.wire;
    bytes_ = RowBytesOf(format, family_.shape.hidden);
    if (format != kBf16Format) {
      const auto cpu = OkOrAbort(CpuBackend::Create({.kernel_family = "portable_fp32"}));
      codec_ = OkOrAbort(device_->MakeCodec({.format = format}));
      const auto encoder = OkOrAbort(cpu->MakeCodec({.format = format}));
      std::vector<const Bf16*> rows(kRows);
      for (std::size_t r = 0; r < kRows; ++r) rows[r] = x.data() + r * hidden;
      data_.resize(kRows * static_cast<std::size_t>(bytes_.data));
      scales_.resize(kRows * static_cast<std::size_t>(bytes_.scales));
      AsHostCodec(*encoder).Encode(rows, family_.shape.hidden, data_.data(), scales_.data());
    } else {
      data_.resize(x.size() * sizeof(Bf16));
      std::memcpy(data_.data(), x.data(), data_.size());
    }
    // Uneven: most rows go to the first experts, the last one gets few.
    const auto experts = static_cast<std::size_t>(family_.shape.experts);
    for (std::size_t i = 0; i < kRows * std::size_t{kWidth}; ++i) {
      const std::size_t slot = rng.Below(rng.Below(experts) + 1);
      slots_.push_back(i % 13 == 5 ? -1 : static_cast<std::int32_t>(slot));
      weights_.push_back(static_cast<float>(rng.Uniform()));
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      if (slots_[r * kWidth] < 0) slots_[r * kWidth] = 0;
    }
  }
  [[nodiscard]] std::span<const std::int32_t> SlotsOf(std::uint32_t row) const {
    return std::span<const std::int32_t>(slots_).subspan(row * std::size_t{kWidth});
  }

  std::vector<float> Run(std::uint32_t first, std::uint32_t count,
                         const std::vector<std::int32_t>& slots, std::int32_t width,
                         CombineUnit combine, OutputDtype dtype, ExpertAmax* amax) {
    const auto hidden = static_cast<std::size_t>(family_.shape.hidden);
    const std::size_t element = dtype == OutputDtype::kF32 ? 4 : 2;
    const auto data_bytes = count * static_cast<std::size_t>(bytes_.data);
    const auto scale_bytes = count * static_cast<std::size_t>(bytes_.scales);
    const MemoryKind kind = device_->host_access() ? MemoryKind::kHost : MemoryKind::kDevice;
    const auto rows = OkOrAbort(device_->Allocate(data_bytes, kind));
    const auto scales = OkOrAbort(device_->Allocate(scale_bytes + 16, kind));
    const auto answers = OkOrAbort(device_->Allocate(count * hidden * element, kind));
    std::vector<std::byte> out(count * hidden * element, kPoison);
    const auto workspace = OkOrAbort(
        device_->MakeWorkspace(family_.shape, static_cast<std::int64_t>(count) * width + kWidth));
    const auto stream = OkOrAbort(device_->MakeStream({.work_class = WorkClass::kPrefill}));
    const CopyPiece in[] = {
        {rows->data(), data_.data() + first * static_cast<std::size_t>(bytes_.data), data_bytes},
        {scales->data(), scales_.data() + first * static_cast<std::size_t>(bytes_.scales),
         scale_bytes},
        {answers->data(), out.data(), out.size()}};
    const CopyPiece back{out.data(), answers->data(), out.size()};
    ExpertInput input{.codec = codec_.get(),
                      .rows = rows->data(),
                      .scales = scales->data(),
                      .count = count,
                      .slots = slots.data(),
                      .weights = weights_.data() + first * std::size_t{kWidth},
                      .out = answers->data()};
    SY_EXPECT_OK(stream->Copy(in));
    SY_EXPECT_OK(stream->Run({.experts = table_.get(),
                              .workspace = workspace.get(),
                              .inputs = {&input, 1},
                              .width = width,
                              .combine = combine,
                              .out_dtype = dtype,
                              .amax = amax}));
    SY_EXPECT_OK(stream->Copy({&back, 1}));
    const auto event = stream->MakeEvent();
    SY_EXPECT_OK(stream->Record(event.get()));
    EXPECT_TRUE(event->Wait(kLong));
    SY_EXPECT_OK(event->status());
    std::vector<float> values(count * hidden);
    if (dtype == OutputDtype::kF32) {
      std::memcpy(values.data(), out.data(), out.size());
    } else {
      for (std::size_t i = 0; i < values.size(); ++i) {
        Bf16 bits = 0;
        std::memcpy(&bits, out.data() + 2 * i, sizeof(bits));
        values[i] = Bf16ToFloat(bits);
      }
    }
    return values;
  }

  DeviceBackend* const device_;
  const Family family_;
  std::unique_ptr<ExpertTable> table_;
  std::unique_ptr<Codec> codec_;
  RowBytes bytes_{};
  std::vector<std::byte> data_;
  std::vector<std::byte> scales_;
  std::vector<std::int32_t> slots_;
  std::vector<float> weights_;
};

std::vector<Family> Families() {
  // 640 is no multiple of 256, 384 gives an odd number of tiles.
  constexpr MoeShape kEven{.hidden = 1024, .intermediate = 512, .experts = 9, .top_k = kWidth};
  constexpr MoeShape kOdd{.hidden = 640, .intermediate = 384, .experts = 7, .top_k = kWidth};
  constexpr MoeShape kRagged{.hidden = 600, .intermediate = 300, .experts = 5, .top_k = kWidth};
  constexpr auto kFp8 = ActivationFormat::kFp8Group;
  constexpr auto kInt8 = ActivationFormat::kInt8Row;
  return {{"Fp8", kEven, Values::kCodes, false, kFp8, kFp8Format},
          {"Fp8Odd", kOdd, Values::kCodes, false, kFp8, kFp8Format},
          {"Fp8RowsFromBf16", kOdd, Values::kCodes, false, kFp8},
          {"Fp8Ragged", kRagged, Values::kCodes, false, kFp8, kFp8Format},
          {"Fp8OfChannels", kOdd, Values::kCodes, true, ActivationFormat::kFp8Row},
          {"Int8", kEven, Values::kCodes, true, kInt8, kInt8Format},
          {"Int8Ragged", kRagged, Values::kCodes, true, kInt8, kInt8Format},
          {"Int8RowsFromBf16", kOdd, Values::kCodes, true, kInt8},
          {"Int8RowsFromFp8", kEven, Values::kCodes, true, kInt8, kFp8Format},
          {"Int4Rows", kOdd, Values::kCodes, true, ActivationFormat::kInt4Row},
          {"Int4", kEven, Values::kInt4},
          {"Int4Ragged", kRagged, Values::kInt4},
          {"Int4OfChannels", kOdd, Values::kInt4, true},
          {"Int4RowsFp8", kOdd, Values::kInt4, false, ActivationFormat::kFp8Group, kFp8Format},
          {"Int4BesideFp8", kEven, Values::kMixed, false, kFp8, kFp8Format},
          {"Int4RowsFp8FromBf16", kRagged, Values::kInt4, false, ActivationFormat::kFp8Row},
          {"E2m1", kEven, Values::kE2m1},
          {"E2m1Ragged", kRagged, Values::kE2m1, true},
          {"Bf16", kEven},
          {"Bf16Odd", kOdd},
          {"Bf16Ragged", kRagged},
          {"Bf16Biased", kOdd, Values::kGaussian, true}};
}

class PrefillRows : public testing::CudaFixture<::testing::TestWithParam<Family>> {
 protected:
};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Pieces of 16 rows never reach the products of prefill, 4096 rows do.
TEST_P(PrefillRows, KeepTheirBitsInBatchesOfEverySize) {
  Layer layer(*device_, GetParam());
  const auto hidden = static_cast<std::size_t>(GetParam().shape.hidden);
  const std::vector<float> whole = layer.PerExpert(0, kRows);
  const std::vector<float> sums = layer.PerWorker(0, kRows);
  const auto part = [&](const std::vector<float>& of, std::uint32_t first, std::uint32_t count) {
    return std::span<const float>(of).subspan(first * hidden, count * hidden);
  };

  for (std::uint32_t first = 0; first + 16 <= 512; first += 16) {
    ASSERT_TRUE(SameBits(layer.PerExpert(first, 16), part(whole, first, 16))) << first;
    ASSERT_TRUE(SameBits(layer.PerWorker(first, 16), part(sums, first, 16))) << first;
  }
  for (const std::uint32_t count : {1U, 63U, 64U, 65U, 129U, 1023U, 2500U}) {
    const std::uint32_t first = kRows - count;
    EXPECT_TRUE(SameBits(layer.PerExpert(first, count), part(whole, first, count))) << count;
    EXPECT_TRUE(SameBits(layer.PerWorker(first, count), part(sums, first, count))) << count;
  }
  EXPECT_TRUE(SameBits(layer.PerWorker(0, kRows), sums)) << "the second time";
}

TEST_P(PrefillRows, AreThoseOfTheCpu) {
  const auto cpu = OkOrAbort(CpuBackend::Create({.kernel_family = "portable_fp32"}));
  Layer on_cpu(*cpu, GetParam());
  Layer on_gpu(*device_, GetParam());

  const std::vector<float> got = on_gpu.PerWorker(0, 700);

  const std::vector<float> want = on_cpu.PerWorker(0, 700);
  EXPECT_LE(CalcDiff(got, std::vector<double>(want.begin(), want.end())), 2e-4);
}

TEST_P(PrefillRows, RecordMagnitudesAndChangeNothing) {
  Layer layer(*device_, GetParam());
  std::vector<ExpertAmax> amax(static_cast<std::size_t>(GetParam().shape.experts));

  const std::vector<float> recorded = layer.PerWorker(0, kRows, amax.data());

  EXPECT_TRUE(SameBits(recorded, layer.PerWorker(0, kRows)));
  EXPECT_GT(amax[0].inputs, 1.0F);
  EXPECT_GT(amax[0].middle, 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Families, PrefillRows, ::testing::ValuesIn(Families()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace switchyard
