#include "worker/device/cpu/cpu_backend.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/codec/codec_bf16.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/self_test.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr MoeShape kShape = {.hidden = 64, .intermediate = 32, .experts = 1, .top_k = 1};

CpuParts GoodParts() {
  return {.family = &kPortableFamily,
          .row_kernels = &kPortableRowKernels,
          .bf16 = std::make_unique<Bf16Codec>()};
}

// portable_fp32 with the sign of one element of the first row lost.
void DownOfWrongElement(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  kPortableFamily.down(call, begin, end);
  if (begin == 0) call.out[1] = -call.out[1];
}

// portable_fp32 whose rows depend on their company, by one unit in the last place.
void DownOfUnsteadyRows(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  kPortableFamily.down(call, begin, end);
  if (begin == 0 && call.row_count > 1) {
    call.out[0] = std::nextafter(call.out[0], 1e9F);
  }
}

KernelFamily PortableWithDown(decltype(KernelFamily::down) down) {
  KernelFamily family = kPortableFamily;
  family.name = "wrong";
  family.down = down;
  return family;
}

TEST(CpuBackendTest, KernelThatMissesTheReferenceIsNotAdvertised) {
  const KernelFamily wrong = PortableWithDown(DownOfWrongElement);
  CpuParts parts = GoodParts();
  parts.family = &wrong;

  SY_ASSERT_OK_AND_ASSIGN(const auto backend, CpuBackend::CreateFrom(std::move(parts)));

  EXPECT_FALSE(backend->capabilities().Takes(QuantScheme::kNone));
  EXPECT_TRUE(backend->capabilities().Takes(DispatchDtype::kBf16));
  const testing::RandomExpert expert(kShape, 61);
  EXPECT_THAT(backend->Pack(kShape, expert.view()),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

TEST(CpuBackendTest, KernelWhoseRowsDependOnTheirCompanyIsNotAdvertised) {
  const KernelFamily wrong = PortableWithDown(DownOfUnsteadyRows);
  CpuParts parts = GoodParts();
  parts.family = &wrong;

  SY_ASSERT_OK_AND_ASSIGN(const auto backend, CpuBackend::CreateFrom(std::move(parts)));

  EXPECT_FALSE(backend->capabilities().Takes(QuantScheme::kNone));
  EXPECT_THAT(std::string(TestKernelFamily(wrong).message()), HasSubstr("the rows beside it"));
}

TEST(CpuBackendTest, EveryUsableFamilyPassesItsSelfTest) {
  for (const KernelFamily* family : KernelFamilies()) {
    if (!family->usable(DetectCpuFeatures())) continue;
    SY_EXPECT_OK(TestKernelFamily(*family));
  }
}

// Loses the last row.
class LossyCodec final : public HostCodec {
 public:
  [[nodiscard]] WireFormat format() const override { return kBf16Format; }
  void Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
              std::byte* scales) const override {
    inner_.Encode(rows.first(rows.size() - 1), hidden, data, scales);
  }
  void Decode(const std::byte* data, const std::byte* scales, std::int64_t rows,
              std::int64_t hidden, Bf16* out) const override {
    inner_.Decode(data, scales, rows, hidden, out);
  }

 private:
  Bf16Codec inner_;
};

TEST(CpuBackendTest, CodecThatLosesARowIsNotAdvertised) {
  CpuParts parts = GoodParts();
  parts.bf16 = std::make_unique<LossyCodec>();

  SY_ASSERT_OK_AND_ASSIGN(const auto backend, CpuBackend::CreateFrom(std::move(parts)));

  EXPECT_FALSE(backend->capabilities().Takes(DispatchDtype::kBf16));
  EXPECT_THAT(backend->MakeCodec({.format = kBf16Format}).status(),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_TRUE(backend->capabilities().Takes(QuantScheme::kNone));
}

// The scalar codec kernels, one format of which a test spoils.
void EncodeRowOfOneWrongCode(const Bf16* row, std::int64_t hidden, float global_scale,
                             std::byte* data, std::byte* scales) {
  kScalarCodecKernels.int8.encode(row, hidden, global_scale, data, scales);
  data[0] ^= std::byte{1};
}
void EncodeWrongOnlyInTheSecondGroup(const Bf16* row, std::int64_t hidden, float global_scale,
                                     std::byte* data, std::byte* scales) {
  kScalarCodecKernels.fp8.encode(row, hidden, global_scale, data, scales);
  if (hidden > 128) scales[4] ^= std::byte{1};
}
void EncodeBeyondTheRow(const Bf16* row, std::int64_t hidden, float global_scale, std::byte* data,
                        std::byte* scales) {
  kScalarCodecKernels.nvfp4.encode(row, hidden, global_scale, data, scales);
  if (hidden > 100) data[(hidden + 1) / 2] = std::byte{0};
}
void DecodeOfOneWrongValue(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                           float global_scale, Bf16* out) {
  kScalarCodecKernels.fp8_ue8m0.decode(data, scales, hidden, global_scale, out);
  out[hidden / 2] ^= 1U;
}

CodecKernels SpoiltCodecKernels() {
  CodecKernels kernels = kScalarCodecKernels;
  kernels.int8.encode = EncodeRowOfOneWrongCode;
  kernels.fp8.encode = EncodeWrongOnlyInTheSecondGroup;
  kernels.nvfp4.encode = EncodeBeyondTheRow;
  kernels.fp8_ue8m0.decode = DecodeOfOneWrongValue;
  return kernels;
}

TEST(CpuBackendTest, FormatWhoseCodecFailsIsNotToBeHadAndOthersAre) {
  CodecKernels kernels = kScalarCodecKernels;
  kernels.int8.encode = EncodeRowOfOneWrongCode;
  CpuParts parts = GoodParts();
  parts.codec_kernels = &kernels;

  SY_ASSERT_OK_AND_ASSIGN(const auto backend, CpuBackend::CreateFrom(std::move(parts)));

  EXPECT_THAT(backend->MakeCodec({.format = kInt8Format}),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  SY_EXPECT_OK(backend->MakeCodec({.format = kFp8Format}).status());
  SY_EXPECT_OK(backend->MakeCodec({.format = kFp8Ue8m0Format}).status());
  SY_EXPECT_OK(backend->MakeCodec({.format = kNvfp4Format, .global_scale = 9}).status());
  EXPECT_TRUE(backend->capabilities().Takes(DispatchDtype::kBf16));
}

TEST(CpuBackendTest, SelfTestSaysWhatIsWrongWithACodec) {
  const CodecKernels spoilt = SpoiltCodecKernels();
  const auto complaint = [&](const WireFormat& format) {
    return std::string(TestRowCodec(spoilt, format).message());
  };

  EXPECT_THAT(complaint(kInt8Format), HasSubstr("known codes"));
  EXPECT_THAT(complaint(kFp8Format), HasSubstr("format fp8, row 0: differs"));
  EXPECT_THAT(complaint(kNvfp4Format), HasSubstr("beyond the row"));
  EXPECT_THAT(complaint(kFp8Ue8m0Format), HasSubstr("differs"));
  EXPECT_THAT(complaint(kBf16Format), HasSubstr("no scalar codec kernels"));
}

TEST(CpuBackendTest, EveryCodecOfThisCpuPassesItsSelfTest) {
  for (const CodecKernels* kernels :
       {&kScalarCodecKernels, &ChooseCodecKernels(DetectCpuFeatures())}) {
    for (const NamedWireFormat& row : WireFormats()) {
      if (row.format == kBf16Format) continue;
      SY_EXPECT_OK(TestRowCodec(*kernels, row.format));
    }
  }
}

TEST(CpuBackendTest, AdvertisesEveryDtypeAndSchemeThatPassed) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, MakeDevice("cpu"));

  EXPECT_EQ(device->capabilities().wire_dtypes,
            (std::vector{DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                         DispatchDtype::kNvfp4}));
  for (const QuantSchemeInfo& row : AllQuantSchemes()) {
    EXPECT_EQ(device->capabilities().Takes(row.scheme), row.scheme != QuantScheme::kMxfp8)
        << row.name;
  }
  for (const NamedWireFormat& row : WireFormats()) {
    SY_EXPECT_OK(device->MakeCodec({.format = row.format}).status());
  }
}

// Multiplies and adds with two roundings.
void UnfusedWeightedSum(const float* const* rows, const float* weights, std::int64_t row_count,
                        std::int64_t hidden, Bf16* out) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    volatile float sum = 0;
    for (std::int64_t row = 0; row < row_count; ++row) {
      volatile const float product = weights[row] * rows[row][i];
      sum = sum + product;
    }
    out[i] = static_cast<Bf16>(FloatToBf16(sum) ^ (i == 3 ? 1U : 0U));
  }
}

TEST(CpuBackendTest, WrongRowKernelsGiveWayToThePortableOnes) {
  RowKernels wrong = kPortableRowKernels;
  wrong.weighted_sum = UnfusedWeightedSum;
  CpuParts parts = GoodParts();
  parts.row_kernels = &wrong;
  const std::vector<float> row(8, 1.5F);
  std::vector<Bf16> out(8);

  SY_ASSERT_OK_AND_ASSIGN(const auto backend, CpuBackend::CreateFrom(std::move(parts)));
  backend->row_ops().WeightedSum(std::vector<const float*>{row.data()}, std::vector<float>{2.0F}, 8,
                                 out.data());

  EXPECT_EQ(out, std::vector<Bf16>(8, FloatToBf16(3.0F)));
  EXPECT_FALSE(TestRowKernels(wrong).ok());
}

TEST(RegistryTest, PicksTheBestUsableFamilyWhenNoneIsNamed) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, MakeDevice("cpu"));

  for (const KernelFamily* family : KernelFamilies()) {
    if (!family->usable(DetectCpuFeatures())) continue;
    EXPECT_EQ(device->capabilities().kernel_family, family->name);
    break;
  }
}

TEST(RegistryTest, RefusesAnUnknownKindListingWhatExists) {
  const auto device = MakeDevice("tpu", {});

  EXPECT_THAT(device, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("it has: cpu"));
}

TEST(RegistryTest, RefusesAnUnknownFamilyListingWhatThisCpuHas) {
  const auto device = CpuBackend::Create({.kernel_family = "neon"});

  EXPECT_THAT(device, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(std::string(device.status().message()),
              HasSubstr(UsableFamilyNames(DetectCpuFeatures())));
}

TEST(RegistryTest, ListsOnlyFamiliesThatTheCpuCanRun) {
  EXPECT_EQ(UsableFamilyNames({}), "portable_fp32, scalar");
}

TEST(RegistryTest, RefusesAThreadCountOutOfRange) {
  const auto bad_config = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);

  EXPECT_THAT(CpuBackend::Create({.compute_threads = 0}), bad_config);
  EXPECT_THAT(CpuBackend::Create({.compute_threads = 257}), bad_config);
}

}  // namespace
}  // namespace switchyard
