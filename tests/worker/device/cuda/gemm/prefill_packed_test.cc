// The products of prefill for packed experts: sums have the bits that the products of decode give
// them, and are those of a slow reference in FP64; h is that of the reference. Outputs are NaN
// before each run, so that what is not written shows; bytes beside rows must stay.
#include "worker/device/cuda/gemm/prefill_packed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_kernels.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/routing.h"

namespace switchyard::cuda {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::IndexRouting;
using testing::LandedRows;
using testing::RandomWeights;

constexpr double kSumBound = 1e-3;
constexpr double kHiddenBound = 4e-2;  // E4M3: 3 bits and a half
constexpr std::int64_t kBehind = 136;  // PrefillRows::scales

struct Case {
  const char* name;
  WeightType type;
  std::vector<std::int32_t> counts;
  std::int64_t n;
  std::int64_t k;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Random experts packed one by one, and rows that stand together.
class Layer {
 public:
  explicit Layer(const Case& c)
      : case_(c),
        weights_({static_cast<int>(c.counts.size()), c.n, c.k, c.type, WeightOrder::kRows128}, 5),
        routing_(c.counts, 1, 3),
        rows_(c.type, Slots(), c.k, 9),
        units_taken_(1) {
    const PackedWeights packed = weights_.packed();
    std::vector<const std::byte*> of_group;
    std::vector<const float*> scales_of_group;
    for (std::size_t g = 0; g < c.counts.size(); g++) {
      const auto group = static_cast<std::int64_t>(g);
      of_group.push_back(packed.data + group * c.n * RowBytesOf(c.type, c.k));
      scales_of_group.push_back(packed.scales + group * (c.n / 128) * (c.k / 128));
    }
    of_group_ = DeviceBuffer<const std::byte*>(of_group);
    scales_of_group_ = DeviceBuffer<const float*>(scales_of_group);
    units_taken_.Fill(0);
    if (c.type == WeightType::kFp8) SpreadScales();
  }

  [[nodiscard]] std::int64_t slots() const { return routing_.slots(); }
  [[nodiscard]] GemmGroups groups() const { return routing_.groups(); }
  [[nodiscard]] GemmRows landed() const { return rows_.rows(nullptr); }
  [[nodiscard]] testing::PlainWeights plain() const { return weights_.plain(); }
  [[nodiscard]] PackedWeights weights() const {
    PackedWeights weights = weights_.packed();
    weights.data = nullptr;
    weights.scales = nullptr;
    weights.of_group = of_group_.get();
    weights.scales_of_group = scales_of_group_.get();
    return weights;
  }
  [[nodiscard]] PrefillRows rows() const {
    const GemmRows landed = rows_.rows(nullptr);
    if (case_.type == WeightType::kInt8) {
      return {.rows = landed.rows,
              .stride = landed.stride,
              .count = Slots(),
              .scales = reinterpret_cast<const float*>(landed.rows + landed.scale_offset),
              .scale_stride = landed.stride / 4};
    }
    return {.rows = landed.rows,
            .stride = landed.stride,
            .count = Slots(),
            .scales = block_scales_.get(),
            .scale_stride = ScaleStride()};
  }
  // The same rows, of FP8 or BF16, in another order. Behind the groups the index is wrong.
  [[nodiscard]] PrefillRows scattered() {
    const GemmRows landed = rows_.rows(nullptr);
    const auto count = static_cast<std::size_t>(Slots());
    const auto stride = static_cast<std::size_t>(landed.stride);
    std::vector<std::byte> bytes(count * stride);
    Check(cudaMemcpy(bytes.data(), landed.rows, bytes.size(), cudaMemcpyDeviceToHost), "rows");
    std::vector<std::int32_t> index(count);
    std::iota(index.begin(), index.end(), 0);
    std::shuffle(index.begin(), index.end(), std::mt19937(7));
    std::vector<std::byte> moved(bytes.size());
    for (std::size_t slot = 0; slot < count; slot++) {
      std::memcpy(moved.data() + static_cast<std::size_t>(index[slot]) * stride,
                  bytes.data() + slot * stride, stride);
      if (slot >= static_cast<std::size_t>(slots())) index[slot] = slot % 2 == 0 ? -7 : 1 << 30;
    }
    scattered_ = DeviceBuffer<std::byte>(moved);
    index_ = DeviceBuffer<std::int32_t>(index);
    return {.rows = scattered_.get(),
            .stride = landed.stride,
            .count = Slots(),
            .index = index_.get(),
            .scales = reinterpret_cast<const float*>(scattered_.get() + landed.scale_offset),
            .scale_stride = landed.stride / 4};
  }
  [[nodiscard]] PrefillScratch scratch(int sms = 0) const { return {units_taken_.get(), sms}; }
  // FP64 sums of all slots.
  [[nodiscard]] std::vector<double> Reference() const {
    const DeviceBuffer<double> out(slots() * case_.n);
    testing::ReferenceGemm(landed(), groups(), slots(), plain(), out.get(), nullptr);
    return out.ToHost();
  }

 private:
  // Kernels read whole tiles: some rows more than the groups have.
  [[nodiscard]] std::int64_t Slots() const { return slots() + 128; }
  [[nodiscard]] std::int64_t ScaleStride() const { return (Slots() + kBehind + 3) / 4 * 4; }
  // From behind each row to blocks of 128, as the products of prefill read them.
  void SpreadScales() {
    const GemmRows landed = rows_.rows(nullptr);
    std::vector<std::byte> bytes(static_cast<std::size_t>(Slots() * landed.stride));
    Check(cudaMemcpy(bytes.data(), landed.rows, bytes.size(), cudaMemcpyDeviceToHost), "rows");
    const std::int64_t blocks = case_.k / 128;
    std::vector<float> scales(static_cast<std::size_t>(blocks * ScaleStride()), NAN);
    for (std::int64_t row = 0; row < Slots(); row++) {
      for (std::int64_t b = 0; b < blocks; b++) {
        std::memcpy(&scales[static_cast<std::size_t>(b * ScaleStride() + row)],
                    bytes.data() + row * landed.stride + landed.scale_offset + b * 4, 4);
      }
    }
    block_scales_ = DeviceBuffer<float>(scales);
  }

  const Case case_;
  RandomWeights weights_;
  IndexRouting routing_;
  LandedRows rows_;
  DeviceBuffer<const std::byte*> of_group_;
  DeviceBuffer<const float*> scales_of_group_;
  DeviceBuffer<float> block_scales_;
  DeviceBuffer<std::uint32_t> units_taken_;
  DeviceBuffer<std::byte> scattered_;
  DeviceBuffer<std::int32_t> index_;
};

class PrefillPackedTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

std::vector<std::uint32_t> Bits(const DeviceBuffer<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values.ToHost()) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

double Relative(double error, double norm) { return norm == 0 ? error : std::sqrt(error / norm); }

TEST_P(PrefillPackedTest, SumsHaveTheBitsOfDecodeAndAreThoseOfTheReference) {
  const Case& c = GetParam();
  const Layer layer(c);
  const std::int64_t stride = c.n + 8;
  DeviceBuffer<float> few(layer.slots() * stride);
  DeviceBuffer<float> many(layer.slots() * stride);
  few.Fill(0xff);
  many.Fill(0xff);
  GemmOutput out{.out = reinterpret_cast<std::byte*>(few.get()), .stride = stride * 4};
  out.fp32 = true;
  ASSERT_EQ(GroupedGemm(layer.landed(), layer.groups(), layer.weights(), out, {32, 3, 4, 0}, false,
                        nullptr),
            cudaSuccess);

  // Twice: a launch leaves the scratch as it found it.
  for (int run = 0; run < 2; run++) {
    ASSERT_EQ(LaunchPrefillSums(layer.rows(), layer.groups(), layer.weights(),
                                {.out = many.get(), .stride = stride}, layer.scratch(), nullptr),
              cudaSuccess);
  }
  Check(cudaDeviceSynchronize(), "run");

  const std::vector<float> got = many.ToHost();
  const std::vector<float> decode = few.ToHost();
  EXPECT_EQ(std::memcmp(got.data(), decode.data(), many.Bytes()), 0);
  const std::vector<double> want = layer.Reference();
  for (std::int64_t slot = 0; slot < layer.slots(); slot++) {
    double error = 0;
    double norm = 0;
    for (std::int64_t i = 0; i < c.n; i++) {
      const double wanted = want[static_cast<std::size_t>(slot * c.n + i)];
      const double difference = got[static_cast<std::size_t>(slot * stride + i)] - wanted;
      error += difference * difference;
      norm += wanted * wanted;
    }
    ASSERT_LT(Relative(error, norm), kSumBound) << "slot " << slot;
    for (std::int64_t i = c.n; i < stride; i++) {
      ASSERT_TRUE(std::isnan(got[static_cast<std::size_t>(slot * stride + i)]))
          << "beside " << slot;
    }
  }
}

// Decoded h of all slots.
std::vector<double> Decoded(const std::vector<std::byte>& rows, const std::vector<float>& scales,
                            bool fp8, std::int64_t slots, std::int64_t n) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < slots * n; i++) {
    if (fp8) {
      const float scale = scales[static_cast<std::size_t>(i % n / 128 * slots + i / n)];
      const auto code = static_cast<Fp8E4m3>(rows[static_cast<std::size_t>(i)]);
      values.push_back(static_cast<double>(E4m3ToFloat(code)) * static_cast<double>(scale));
    } else {
      Bf16 bits = 0;
      std::memcpy(&bits, rows.data() + 2 * i, sizeof(bits));
      values.push_back(static_cast<double>(Bf16ToFloat(bits)));
    }
  }
  return values;
}

TEST_P(PrefillPackedTest, HiddenIsThatOfTheReference) {
  const Case& c = GetParam();
  if (c.n % 256 != 0) GTEST_SKIP() << "gate and up have multiples of 128 rows";
  if (c.type == WeightType::kInt8) GTEST_SKIP() << "h of INT8 is rounded by whole rows";
  const Layer layer(c);
  const bool fp8 = c.type == WeightType::kFp8;
  const std::int64_t n = c.n / 2;
  const std::int64_t row_bytes = fp8 ? n : 2 * n;
  DeviceBuffer<std::byte> rows(layer.slots() * row_bytes);
  DeviceBuffer<float> scales(n / 128 * layer.slots());
  rows.Fill(0xff);
  scales.Fill(0xff);

  ASSERT_EQ(LaunchPrefillHidden(layer.rows(), layer.groups(), layer.weights(),
                                {.rows = rows.get(),
                                 .stride = row_bytes,
                                 .scales = scales.get(),
                                 .scale_stride = layer.slots()},
                                layer.scratch(), nullptr),
            cudaSuccess);
  Check(cudaDeviceSynchronize(), "run");

  const std::vector<double> want = layer.Reference();
  const std::vector<double> got = Decoded(rows.ToHost(), scales.ToHost(), fp8, layer.slots(), n);
  for (std::int64_t slot = 0; slot < layer.slots(); slot++) {
    const double* sums = want.data() + slot * c.n;
    double error = 0;
    double norm = 0;
    for (std::int64_t i = 0; i < n; i++) {
      const double wanted = sums[i] / (1 + std::exp(-sums[i])) * sums[n + i];
      const double difference = got[static_cast<std::size_t>(slot * n + i)] - wanted;
      error += difference * difference;
      norm += wanted * wanted;
    }
    ASSERT_LT(Relative(error, norm), fp8 ? kHiddenBound : 8e-3) << "slot " << slot;
  }
}

TEST_P(PrefillPackedTest, HiddenOfRowsByIndexHasTheSameBits) {
  const Case& c = GetParam();
  if (c.n % 256 != 0) GTEST_SKIP() << "gate and up have multiples of 128 rows";
  if (c.type == WeightType::kInt8) GTEST_SKIP() << "no index for INT8";
  Layer layer(c);
  const std::int64_t n = c.n / 2;
  const std::int64_t row_bytes = RowBytesOf(c.type, n);
  const auto hidden = [&](const PrefillRows& from, int sms) {
    DeviceBuffer<std::byte> rows(layer.slots() * row_bytes);
    DeviceBuffer<float> scales(n / 128 * layer.slots());
    rows.Fill(0xff);
    scales.Fill(0xff);
    EXPECT_EQ(LaunchPrefillHidden(from, layer.groups(), layer.weights(),
                                  {.rows = rows.get(),
                                   .stride = row_bytes,
                                   .scales = scales.get(),
                                   .scale_stride = layer.slots()},
                                  layer.scratch(sms), nullptr),
              cudaSuccess);
    Check(cudaDeviceSynchronize(), "run");
    return std::pair(rows.ToHost(), Bits(scales));
  };
  const auto wanted = hidden(layer.rows(), 0);
  const PrefillRows scattered = layer.scattered();

  for (const int sms : {0, 2, 60}) EXPECT_EQ(hidden(scattered, sms), wanted) << sms;
}

TEST_P(PrefillPackedTest, AnswersAreTheSumsRounded) {
  const Case& c = GetParam();
  if (c.type == WeightType::kInt8) GTEST_SKIP() << "no answers of INT8";
  const Layer layer(c);
  const std::int64_t stride = c.n + 8;
  DeviceBuffer<float> sums(layer.slots() * c.n);
  DeviceBuffer<std::uint16_t> answers(layer.slots() * stride);
  answers.Fill(0xee);
  ASSERT_EQ(LaunchPrefillSums(layer.rows(), layer.groups(), layer.weights(),
                              {.out = sums.get(), .stride = c.n}, layer.scratch(), nullptr),
            cudaSuccess);

  ASSERT_EQ(
      LaunchPrefillAnswers(layer.rows(), layer.groups(), layer.weights(),
                           {.out = answers.get(), .stride = stride}, layer.scratch(), nullptr),
      cudaSuccess);

  Check(cudaDeviceSynchronize(), "run");
  const std::vector<float> of_sums = sums.ToHost();
  const std::vector<std::uint16_t> got = answers.ToHost();
  for (std::int64_t slot = 0; slot < layer.slots(); slot++) {
    for (std::int64_t i = 0; i < stride; i++) {
      const Bf16 wanted =
          i < c.n ? FloatToBf16(of_sums[static_cast<std::size_t>(slot * c.n + i)]) : Bf16{0xeeee};
      ASSERT_EQ(got[static_cast<std::size_t>(slot * stride + i)], wanted) << slot << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PrefillPackedTest,
    ::testing::Values(Case{"Fp8Few", WeightType::kFp8, {40, 0, 3}, 256, 256},
                      Case{"Bf16Few", WeightType::kBf16, {40, 0, 3}, 256, 256},
                      Case{"Int8Few", WeightType::kInt8, {40, 0, 3}, 256, 256},
                      Case{"Int8Uneven", WeightType::kInt8, {1, 0, 130, 257, 64, 300}, 768, 512},
                      Case{"Int8OddTiles", WeightType::kInt8, {129, 700, 1}, 384, 4352},
                      Case{"Fp8Uneven", WeightType::kFp8, {1, 0, 130, 257, 64, 300}, 768, 512},
                      Case{"Bf16Uneven", WeightType::kBf16, {1, 0, 130, 257, 64, 300}, 768, 512},
                      Case{"Fp8OddTiles", WeightType::kFp8, {129, 700, 1}, 384, 4352},
                      Case{"Bf16OddTiles", WeightType::kBf16, {129, 700, 1}, 384, 4352}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace switchyard::cuda
