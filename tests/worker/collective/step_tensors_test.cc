#include "worker/collective/source/step_tensors.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/rng.h"
#include "tests/testing/late_device.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::LateDevice;

constexpr std::int32_t kTokens = 3;
constexpr std::int32_t kHidden = 40;
constexpr std::int32_t kTopK = 2;
constexpr MoeShape kShape{.hidden = kHidden, .intermediate = 32, .experts = 8, .top_k = kTopK};

// Tensors with `gap` elements behind each row.
struct Tensors {
  explicit Tensors(std::int32_t gap) {
    SeededRng rng(3);
    x = testing::GaussianBf16(kTokens * (kHidden + gap), 1.0, rng);
    for (std::int32_t i = 0; i < kTokens * (kTopK + gap); ++i) {
      ids.push_back(i % kShape.experts);
      weights.push_back(0.25F * static_cast<float>(i));
    }
    y.assign(static_cast<std::size_t>(kTokens * (kHidden + gap)), -7.0F);
    request.layer = LayerId{1};
    request.tokens = kTokens;
    request.top_k = kTopK;
    request.x = x.data();
    request.ids = ids.data();
    request.weights = weights.data();
    request.y = y.data();
    request.x_stride = request.y_stride = kHidden + gap;
    request.ids_stride = request.weights_stride = kTopK + gap;
  }

  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
  StepRequest request;
};

template <typename T>
void ExpectRow(const T* row, const T* want, std::int32_t columns) {
  EXPECT_TRUE(std::equal(row, row + columns, want));
}

TEST(StepTensorsTest, CopiesAreDenseAndYComesBackToItsRows) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, MakeDevice("cpu"));
  SY_ASSERT_OK_AND_ASSIGN(const auto copies,
                          HostTensors::Make(device.get(), {.shape = kShape, .tokens_max = 5}));
  for (const std::int32_t gap : {0, 5}) {
    SCOPED_TRACE(gap);
    Tensors tensors(gap);

    const StepRequest copied = copies->Take(tensors.request);

    SY_EXPECT_OK(CheckDense(copied, kHidden));
    for (std::int32_t row = 0; row < kTokens; ++row) {
      ExpectRow(copied.x + row * kHidden, tensors.x.data() + row * (kHidden + gap), kHidden);
      ExpectRow(copied.ids + row * kTopK, tensors.ids.data() + row * (kTopK + gap), kTopK);
      ExpectRow(copied.weights + row * kTopK, tensors.weights.data() + row * (kTopK + gap), kTopK);
    }
    auto* const y = static_cast<float*>(copied.y);
    for (std::int32_t i = 0; i < kTokens * kHidden; ++i) y[i] = static_cast<float>(i);
    copies->Give();
    for (std::int32_t row = 0; row < kTokens; ++row) {
      const float* const given = tensors.y.data() + row * (kHidden + gap);
      ExpectRow(given, y + row * kHidden, kHidden);
      for (std::int32_t i = 0; i < gap; ++i) EXPECT_EQ(given[kHidden + i], -7.0F);
    }
  }
}

TEST(StepTensorsTest, ASingleRowNeedsNoStride) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, MakeDevice("cpu"));
  const HostTensors::Size size{.shape = kShape, .tokens_max = 1, .y_dtype = OutputDtype::kBf16};
  SY_ASSERT_OK_AND_ASSIGN(const auto copies, HostTensors::Make(device.get(), size));
  Tensors tensors(0);
  std::vector<Bf16> y(kHidden);
  tensors.request.tokens = 1;
  tensors.request.y = y.data();
  tensors.request.x_stride = tensors.request.y_stride = 0;
  tensors.request.ids_stride = tensors.request.weights_stride = 0;

  const StepRequest copied = copies->Take(tensors.request);
  ExpectRow(copied.x, tensors.x.data(), kHidden);
  std::memcpy(copied.y, copied.x, kHidden * sizeof(Bf16));
  copies->Give();

  ExpectRow(y.data(), tensors.x.data(), kHidden);
}

TEST(StepTensorsTest, TensorsOfTheHostNeedCopiesWhereADeviceHasItsOwnMemory) {
  SY_ASSERT_OK_AND_ASSIGN(const auto cpu, MakeDevice("cpu"));
  SY_ASSERT_OK_AND_ASSIGN(const auto late, LateDevice::Create({}));
  SY_ASSERT_OK_AND_ASSIGN(const auto memory, late->Allocate(4096, MemoryKind::kDevice));
  Tensors tensors(0);
  StepRequest request = tensors.request;
  EXPECT_EQ(NeedCopies(*cpu, "cpu", request).value(), false);
  EXPECT_EQ(NeedCopies(*late, "late", request).value(), true);

  request.x = reinterpret_cast<const Bf16*>(memory->data());
  request.y = memory->data() + 2048;
  const auto mixed = NeedCopies(*late, "late", request);
  EXPECT_THAT(mixed.status(), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(mixed.status().message(), HasSubstr("ids, weights: memory that late does not reach"));

  request.ids = reinterpret_cast<const std::int32_t*>(memory->data() + 1024);
  request.weights = reinterpret_cast<const float*>(memory->data() + 1536);
  EXPECT_EQ(NeedCopies(*late, "late", request).value(), false);
  tensors.request.tokens = 0;
  EXPECT_EQ(NeedCopies(*late, "late", tensors.request).value(), false);
}

TEST(StepTensorsTest, WhatAGroupCannotReadIsRefused) {
  Tensors strided(8);
  EXPECT_THAT(CheckDense(strided.request, kHidden),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  Tensors shifted(0);
  shifted.request.x += 1;
  EXPECT_THAT(CheckDense(shifted.request, kHidden),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  Tensors wrong(0);
  SY_EXPECT_OK(CheckStepIds(wrong.request, kShape.experts));
  wrong.ids[4] = kShape.experts;
  EXPECT_THAT(CheckStepIds(wrong.request, kShape.experts),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
}

// Goal: a session that may have steps of a million tokens takes no memory for them before they
// come.
TEST(HostTensorsTest, AreAsLargeAsStepsAre) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, LateDevice::Create({}));
  const HostTensors::Size most{.shape = kShape, .tokens_max = 1000};
  std::unique_ptr<HostTensors> tensors;
  SY_ASSERT_OK(HostTensors::Reserve(device.get(), most, 3, &tensors));
  const HostTensors* const first = tensors.get();
  SY_ASSERT_OK(HostTensors::Reserve(device.get(), most, 256, &tensors));
  EXPECT_EQ(tensors.get(), first);
  SY_ASSERT_OK(HostTensors::Reserve(device.get(), most, 1000, &tensors));
  EXPECT_NE(tensors.get(), nullptr);
  const HostTensors* const whole = tensors.get();
  SY_ASSERT_OK(HostTensors::Reserve(device.get(), most, 999, &tensors));
  EXPECT_EQ(tensors.get(), whole);
}

}  // namespace
}  // namespace switchyard
