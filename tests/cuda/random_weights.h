// Random weights of all groups, as the checkpoint has them and packed.
#pragma once

#include <cstdint>

#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_kernels.h"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda::testing {

struct WeightSpec {
  int groups = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  WeightType type = WeightType::kFp8;
  WeightOrder order = WeightOrder::kRows128;
};

class RandomWeights {
 public:
  // Narrow weights are random codes under scales of about one, packed only.
  explicit RandomWeights(const WeightSpec& spec, std::uint32_t seed, bool keep_plain = true)
      : spec_(spec) {
    if (IsNarrow(spec.type)) {
      FillNarrow(seed);
      return;
    }
    const std::int64_t values = spec.groups * spec.n * spec.k;
    const std::int64_t of_group = spec.n * RowBytesOf(spec.type, spec.k);
    plain_ = DeviceBuffer<std::byte>(spec.groups * of_group);
    packed_ = DeviceBuffer<std::byte>(spec.groups * of_group);
    if (spec.type == WeightType::kFp8) {
      FillFp8(plain_.get(), values, seed, 8.0F, nullptr);
      scales_ = DeviceBuffer<float>(spec.groups * (spec.n / 128) * (spec.k / 128));
      FillScales(scales_.get(), scales_.count(), seed + 1, 0.003F, 0.009F, nullptr);
    } else if (spec.type == WeightType::kInt8) {
      FillInt8(plain_.get(), values, seed, nullptr);
    } else {
      FillBf16(reinterpret_cast<std::uint16_t*>(plain_.get()), values, seed, 0.1F, nullptr);
    }
    for (int g = 0; g < spec.groups; g++) {
      const std::byte* first = plain_.get() + g * of_group;
      Check(PackWeights({first, first + of_group / 2}, spec.type, spec.order, spec.n, spec.k,
                        packed_.get() + g * of_group, nullptr),
            "PackWeights");
    }
    Check(cudaDeviceSynchronize(), "pack");
    if (!keep_plain) plain_ = DeviceBuffer<std::byte>();
  }

  [[nodiscard]] PackedWeights packed() const {
    return {packed_.get(), scales_.get(), spec_.n, spec_.k, spec_.type, spec_.order};
  }
  [[nodiscard]] PlainWeights plain() const {
    return {plain_.get(), scales_.get(), spec_.n, spec_.k, spec_.type};
  }
  [[nodiscard]] std::int64_t bytes() const { return packed_.count(); }

 private:
  void FillNarrow(std::uint32_t seed) {
    const std::int64_t bytes = spec_.groups * WeightBytesOf(spec_.type, spec_.n, spec_.k);
    packed_ = DeviceBuffer<std::byte>(bytes);
    FillInt8(packed_.get(), bytes, seed, nullptr);
    const auto block = static_cast<std::size_t>(NarrowBlockBytes(spec_.type));
    constexpr std::size_t kCodes = 128 * 64;
    // INT4: 0x3c3c3c3c is an FP32 scale of 0.01; E2M1: 0x80 is one.
    Check(cudaMemset2D(packed_.get() + kCodes, block, spec_.type == WeightType::kE2m1 ? 0x80 : 0x3c,
                       block - kCodes, static_cast<std::size_t>(bytes) / block),
          "scales");
    Check(cudaDeviceSynchronize(), "fill");
  }

  WeightSpec spec_;
  DeviceBuffer<std::byte> plain_;
  DeviceBuffer<std::byte> packed_;
  DeviceBuffer<float> scales_;
};

// Random rows that a dispatch has landed: FP8 with scales after the data, INT8 with one, or BF16.
class LandedRows {
 public:
  LandedRows(WeightType type, std::int64_t rows, std::int64_t k, std::uint32_t seed)
      : type_(type), k_(k), stride_((RowBytesOf(type, k) + k / 128 * 8 + 127) / 128 * 128) {
    rows_ = DeviceBuffer<std::byte>(rows * stride_);
    if (HasFp8Rows(type)) {
      const bool sums = type == WeightType::kInt4Fp8;
      FillFp8Rows({rows_.get(), rows, stride_, k, k, sums}, seed, 0.001F, 0.003F, nullptr);
    } else if (type == WeightType::kInt8) {
      FillInt8Rows({rows_.get(), rows, stride_, k, k}, seed, 0.001F, 0.003F, nullptr);
    } else {
      FillBf16(reinterpret_cast<std::uint16_t*>(rows_.get()), rows * stride_ / 2, seed, 1.0F,
               nullptr);
    }
    Check(cudaDeviceSynchronize(), "fill rows");
  }

  [[nodiscard]] GemmRows rows(const std::int32_t* index) const {
    return {rows_.get(), stride_, type_ == WeightType::kBf16 ? 0 : k_, index};
  }
  // Makes every value of a row NaN.
  void PoisonRow(std::int64_t row) {
    Check(cudaMemset(rows_.get() + row * stride_, HasFp8Rows(type_) ? 0x7f : 0xff,
                     static_cast<std::size_t>(RowBytesOf(type_, k_))),
          "poison");
  }

 private:
  WeightType type_;
  std::int64_t k_;
  std::int64_t stride_;
  DeviceBuffer<std::byte> rows_;
};

}  // namespace switchyard::cuda::testing
