// Units that are cut along k, whose sums go from CTA to CTA, against the same units whole: the
// bytes must be the same for any number of CTAs. Whole units are held against a reference in
// grouped_gemm_test.cc and narrow_gemm_test.cc.
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/cuda/device_buffer.h"
#include "tests/cuda/graph_replay.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/routing.h"
#include "worker/device/cuda/decode/grouped_gemm.h"

namespace switchyard::cuda {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::IndexRouting;
using testing::LandedRows;
using testing::RandomWeights;

constexpr int kSourceRows = 300;
constexpr int kCtasMax = 400;

struct Case {
  const char* name;
  WeightType type;
  WeightOrder order;
  bool fp32;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
const Case kCases[] = {
    {"fp8_128", WeightType::kFp8, WeightOrder::kRows128, false},
    {"fp8_256", WeightType::kFp8, WeightOrder::kRows256, false},
    {"fp8_sums", WeightType::kFp8, WeightOrder::kRows128, true},
    {"fp8_hidden", WeightType::kFp8, WeightOrder::kGateUp256, false},
    {"bf16_128", WeightType::kBf16, WeightOrder::kRows128, false},
    {"bf16_256", WeightType::kBf16, WeightOrder::kRows256, false},
    {"bf16_sums", WeightType::kBf16, WeightOrder::kRows128, true},
    {"int8_sums", WeightType::kInt8, WeightOrder::kRows128, true},
    {"int4_sums", WeightType::kInt4, WeightOrder::kRows128, true},  // stays whole
};

class SumCarryTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

// One product of random rows and weights.
class Product {
 public:
  Product(const Case& c, const std::vector<std::int32_t>& counts, std::int64_t n, std::int64_t k)
      : weights_({static_cast<int>(counts.size()), n, k, c.type, c.order}, 35),
        rows_(c.type, kSourceRows, k, 39),
        routing_(counts, kSourceRows, 5),
        stride_(n * (c.fp32 ? 4 : 2)),
        out_(routing_.slots() * stride_),
        carry_(CarryBytesOf(c.order, 64, kCtasMax)) {
    view_ = {.out = out_.get(), .stride = stride_, .scale_offset = n, .fp32 = c.fp32};
    carry_.Fill(0);
  }

  void Poison() { out_.Fill(0xff); }
  void Run(GemmPlan plan, bool cut, cudaStream_t stream = nullptr) {
    if (cut) plan.carry = {carry_.get(), carry_.count()};
    Check(GroupedGemm(rows_.rows(routing_.rows()), routing_.groups(), weights_.packed(), view_,
                      plan, true, stream),
          "GroupedGemm");
  }
  [[nodiscard]] std::vector<std::byte> Bytes() const { return out_.ToHost(); }
  // Sums stay where they were, flags must be clear.
  [[nodiscard]] bool IsClear(std::int64_t flag_bytes) const {
    const std::vector<std::byte> bytes = carry_.ToHost();
    for (std::int64_t i = 0; i < flag_bytes; i++) {
      if (bytes[static_cast<std::size_t>(i)] != std::byte{0}) return false;
    }
    return true;
  }

 private:
  RandomWeights weights_;
  LandedRows rows_;
  IndexRouting routing_;
  std::int64_t stride_;
  DeviceBuffer<std::byte> out_;
  DeviceBuffer<std::byte> carry_;
  GemmOutput view_;
};

TEST_P(SumCarryTest, CutUnitsGiveTheBytesOfWholeOnes) {
  const std::vector<std::int32_t> counts = {20, 0, 0, 25, 14, 70, 0, 1, 19};
  const std::int64_t flags = CarryBytesOf(GetParam().order, 64, 0);
  for (const auto& [n, k] : {std::pair{3072, 2048}, {768, 4352}, {256, 128}}) {
    Product product(GetParam(), counts, n, k);
    for (const int row_tile : {24, 32, 64}) {
      if (row_tile == 64 && IsNarrow(GetParam().type)) continue;
      product.Poison();
      product.Run({row_tile, 3, 4, 0}, false);
      const std::vector<std::byte> whole = product.Bytes();
      for (const int ctas : {0, 1, 2, 5, 7, 31, 50, 100, 131, 160, 200, 400}) {
        for (const auto& [window, early] : {std::pair{1, 0}, {4, 5}, {99, 99}}) {
          product.Poison();
          for (int repeat = 0; repeat < 4; repeat++)
            product.Run({row_tile, window, early, ctas}, true);
          ASSERT_EQ(product.Bytes(), whole)
              << n << " x " << k << ", row tile " << row_tile << ", CTAs " << ctas;
          ASSERT_TRUE(product.IsClear(flags)) << "CTAs " << ctas;
        }
      }
    }
  }
}

// Few enough runs for compute-sanitizer.
TEST_P(SumCarryTest, AFewCutUnits) {
  Product product(GetParam(), {20, 0, 33}, 768, 4352);
  product.Poison();
  product.Run({32, 3, 4, 0}, false);
  const std::vector<std::byte> whole = product.Bytes();
  for (const int ctas : {5, 7}) {
    product.Poison();
    product.Run({32, 4, 5, ctas}, true);
    ASSERT_EQ(product.Bytes(), whole) << "CTAs " << ctas;
  }
}

// Two products behind each other, as in a layer: they share the memory of their sums.
TEST_P(SumCarryTest, TenThousandReplaysGiveTheSameBytes) {
  const std::int64_t flags = CarryBytesOf(GetParam().order, 64, 0);
  Product product(GetParam(), {20, 0, 0, 25, 14, 30, 0, 1, 19}, 3072, 2048);
  product.Poison();
  product.Run({32, 3, 4, 0}, false);
  const std::vector<std::byte> whole = product.Bytes();

  int looks = 0;
  testing::ReplayLong(
      [&](cudaStream_t stream) {
        product.Run({32, 4, 5, 50}, true, stream);
        product.Run({32, 4, 5, 100}, true, stream);
      },
      [&] {
        looks++;
        EXPECT_EQ(product.Bytes(), whole) << "after " << looks << " thousand";
        EXPECT_TRUE(product.IsClear(flags)) << "after " << looks << " thousand";
        product.Poison();
        return !HasFailure();
      });

  EXPECT_EQ(looks, 10);
}

INSTANTIATE_TEST_SUITE_P(Cases, SumCarryTest, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace switchyard::cuda
