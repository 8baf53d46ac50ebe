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
  explicit RandomWeights(const WeightSpec& spec, std::uint32_t seed, bool keep_plain = true)
      : spec_(spec) {
    const std::int64_t values = spec.groups * spec.n * spec.k;
    const std::int64_t of_group = spec.n * RowBytesOf(spec.type, spec.k);
    plain_ = DeviceBuffer<std::byte>(spec.groups * of_group);
    packed_ = DeviceBuffer<std::byte>(spec.groups * of_group);
    if (spec.type == WeightType::kFp8) {
      FillFp8(plain_.get(), values, seed, 8.0F, nullptr);
      scales_ = DeviceBuffer<float>(spec.groups * (spec.n / 128) * (spec.k / 128));
      FillScales(scales_.get(), scales_.count(), seed + 1, 0.003F, 0.009F, nullptr);
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
  WeightSpec spec_;
  DeviceBuffer<std::byte> plain_;
  DeviceBuffer<std::byte> packed_;
  DeviceBuffer<float> scales_;
};

// Random rows that a dispatch has landed: FP8 with scales after the data, or BF16.
class LandedRows {
 public:
  LandedRows(WeightType type, std::int64_t rows, std::int64_t k, std::uint32_t seed)
      : type_(type), k_(k), stride_((RowBytesOf(type, k) + k / 128 * 4 + 127) / 128 * 128) {
    rows_ = DeviceBuffer<std::byte>(rows * stride_);
    if (type == WeightType::kFp8) {
      FillFp8Rows({rows_.get(), rows, stride_, k, k}, seed, 0.001F, 0.003F, nullptr);
    } else {
      FillBf16(reinterpret_cast<std::uint16_t*>(rows_.get()), rows * stride_ / 2, seed, 1.0F,
               nullptr);
    }
    Check(cudaDeviceSynchronize(), "fill rows");
  }

  [[nodiscard]] GemmRows rows(const std::int32_t* index) const {
    return {rows_.get(), stride_, type_ == WeightType::kFp8 ? k_ : 0, index};
  }
  // Makes every value of a row NaN.
  void PoisonRow(std::int64_t row) {
    Check(cudaMemset(rows_.get() + row * stride_, type_ == WeightType::kFp8 ? 0x7f : 0xff,
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
