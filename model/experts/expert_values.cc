#include "model/experts/expert_values.h"

#include <array>
#include <cstring>
#include <span>

#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "model/quant/layout/f16.h"
#include "model/quant/layout/tensor_values.h"

namespace switchyard {
namespace {

std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = E4m3ToFloat(static_cast<Fp8E4m3>(code));
  }
  return table;
}

std::array<float, 16> MakeE2m1Table() {
  std::array<float, 16> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = E2m1ToFloat(static_cast<Fp4E2m1>(code));
  }
  return table;
}

float SignedInt4(std::uint32_t nibble) {
  return static_cast<float>(static_cast<std::int32_t>(nibble << 28) >> 28);
}

std::vector<float> FloatsOf(const RawTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values.push_back(FloatAt(tensor, i));
  return values;
}

// The scales of a layout that has one for each output and group of K; none for others.
class GroupScales {
 public:
  explicit GroupScales(const RawProjection& raw)
      : layout_(raw.quant.layout),
        rows_(raw.size.rows),
        size_(raw.quant.group_size == 0 ? raw.size.columns : raw.quant.group_size),
        count_(raw.size.columns / size_) {
    if (!Has(raw)) return;
    if (const RawTensor* scale = raw.Find(TensorRole::kScale)) scales_ = FloatsOf(*scale);
    if (const RawTensor* second = raw.Find(TensorRole::kScaleSecond)) second_ = FloatsOf(*second);
  }

  [[nodiscard]] bool any() const { return !scales_.empty(); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  // They may stay outside the values: sums are scaled after all of K, or each 128 of it. NVFP4's
  // never: with E2M1 they make values that are exact.
  [[nodiscard]] bool apart() const {
    if (layout_ == QuantLayout::kNvfp4ModelOpt || layout_ == QuantLayout::kNvfp4Compressed) {
      return false;
    }
    return any() && (count_ == 1 || size_ % kScaleBlock == 0);
  }

  [[nodiscard]] float At(std::int64_t n, std::int64_t group) const {
    if (layout_ == QuantLayout::kAwq) return scales_[Index(group * rows_ + n)];
    const std::size_t at = Index(n * count_ + group);
    // As NPU kernels compute it: rounded to F16.
    if (!second_.empty()) return F16ToFloat(FloatToF16(scales_[Index(n)] * second_[at]));
    return scales_[at];
  }

  // All of them; call it where apart().
  [[nodiscard]] WeightScales Scales() const {
    WeightScales scales;
    std::vector<float>& to = of_rows() ? scales.channels : scales.groups;
    const std::int64_t blocks = of_rows() ? 1 : ScaleBlocks(count_ * size_);
    to.reserve(Index(rows_ * blocks));
    for (std::int64_t n = 0; n < rows_; ++n) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        to.push_back(At(n, block * kScaleBlock / size_));
      }
    }
    return scales;
  }

 private:
  static bool Has(const RawProjection& raw) {
    switch (raw.quant.layout) {
      case QuantLayout::kNvfp4ModelOpt:
      case QuantLayout::kNvfp4Compressed:
      case QuantLayout::kW4Afp8:
      case QuantLayout::kPackQuantized:
      case QuantLayout::kAwq:
        return true;
      case QuantLayout::kModelSlimW4A8:
        return raw.Find(TensorRole::kScaleSecond) != nullptr;
      default:
        return false;
    }
  }
  // One group a row, and none that may be negative: kernels take no such scale of an output.
  [[nodiscard]] bool of_rows() const { return count_ == 1 && !ScalesMayBeNegative(layout_); }
  static std::size_t Index(std::int64_t at) { return static_cast<std::size_t>(at); }

  const QuantLayout layout_;
  const std::int64_t rows_;
  const std::int64_t size_;
  const std::int64_t count_;  // groups of a row
  std::vector<float> scales_;
  std::vector<float> second_;
};

// One projection, row after row into FP32, then into BF16. Without what ScalesOf returns.
class RowReader {
 public:
  RowReader(const RawProjection& raw, const GroupScales& groups)
      : raw_(raw),
        groups_(groups),
        scaled_(groups.any() && !groups.apart()),
        rows_(raw.size.rows),
        columns_(raw.size.columns),
        bytes_(reinterpret_cast<const std::uint8_t*>(raw.Find(TensorRole::kWeight)->bytes.data())) {
  }

  void Row(std::int64_t n, float* out) const {
    Codes(n, out);
    if (!scaled_) return;
    for (std::int64_t first = 0; first < columns_; first += groups_.size()) {
      const float factor = groups_.At(n, first / groups_.size());
      for (std::int64_t k = first; k < first + groups_.size(); ++k) out[k] *= factor;
    }
  }

  // [rows, columns] of a layout that stores columns of [columns, rows].
  void AllOfAwq(Bf16* out) const {
    // Where column 8j + i is: the inverse of {0, 2, 4, 6, 1, 3, 5, 7}.
    constexpr std::array<std::uint32_t, 8> kShiftOfColumn{0, 16, 4, 20, 8, 24, 12, 28};
    const RawTensor& zeros = *raw_.Find(TensorRole::kZeroPoints);
    const auto* zero_bytes = reinterpret_cast<const std::uint8_t*>(zeros.bytes.data());
    const std::int64_t words = rows_ / 8;
    for (std::int64_t k = 0; k < columns_; ++k) {
      const std::int64_t group = k / groups_.size();
      for (std::int64_t word = 0; word < words; ++word) {
        const std::uint32_t codes = WordAt(bytes_, k * words + word);
        const std::uint32_t zero_codes = WordAt(zero_bytes, group * words + word);
        for (std::int64_t i = 0; i < 8; ++i) {
          const std::uint32_t shift = kShiftOfColumn[static_cast<std::size_t>(i)];
          const std::int64_t n = word * 8 + i;
          const auto code = static_cast<float>((codes >> shift) & 0xfU);
          const auto zero = static_cast<float>((zero_codes >> shift) & 0xfU);
          const float factor = scaled_ ? groups_.At(n, group) : 1.0F;
          out[n * columns_ + k] = FloatToBf16((code - zero) * factor);
        }
      }
    }
  }

 private:
  void Codes(std::int64_t n, float* out) const {
    switch (raw_.quant.layout) {
      case QuantLayout::kBf16:
      case QuantLayout::kAwq:
        break;  // neither comes row by row
      case QuantLayout::kFp8Block:
      case QuantLayout::kFp8BlockCompressed:
      case QuantLayout::kFp8Channel:
      case QuantLayout::kFp8Tensor:
        return Fp8Row(n, out);
      case QuantLayout::kNvfp4ModelOpt:
      case QuantLayout::kNvfp4Compressed:
        return PairRow(n, out, [this](std::uint32_t nibble) { return e2m1_[nibble]; });
      case QuantLayout::kW4Afp8:
        return PairRow(n, out, SignedInt4);
      case QuantLayout::kInt8Channel:
      case QuantLayout::kModelSlimW8A8:
      case QuantLayout::kModelSlimW4A4:
        return Int8Row(n, out);
      case QuantLayout::kModelSlimW4A8:
        return TwoRowsInAByte(n, out);
      case QuantLayout::kPackQuantized:
        return WordRow(n, out);
    }
  }

  static std::uint32_t WordAt(const std::uint8_t* bytes, std::int64_t index) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + index * 4, sizeof(word));
    return word;
  }

  void Fp8Row(std::int64_t n, float* out) const {
    const std::uint8_t* in = bytes_ + n * columns_;
    for (std::int64_t k = 0; k < columns_; ++k) out[k] = e4m3_[in[k]];
  }
  // Two values of a row in each byte.
  template <typename Decode>
  void PairRow(std::int64_t n, float* out, Decode decode) const {
    const std::uint8_t* in = bytes_ + n * (columns_ / 2);
    for (std::int64_t k = 0; k < columns_; k += 2) {
      const std::uint32_t both = in[k / 2];
      out[k] = decode(both & 0xfU);
      out[k + 1] = decode(both >> 4U);
    }
  }
  void Int8Row(std::int64_t n, float* out) const {
    const auto* in = reinterpret_cast<const std::int8_t*>(bytes_) + n * columns_;
    for (std::int64_t k = 0; k < columns_; ++k) out[k] = static_cast<float>(in[k]);
  }
  void TwoRowsInAByte(std::int64_t n, float* out) const {
    const std::uint8_t* in = bytes_ + n / 2 * columns_;
    const std::uint32_t shift = n % 2 == 0 ? 0 : 4;
    for (std::int64_t k = 0; k < columns_; ++k) {
      out[k] = SignedInt4((static_cast<std::uint32_t>(in[k]) >> shift) & 0xfU);
    }
  }
  // Eight values of a row in each word, value + 8.
  void WordRow(std::int64_t n, float* out) const {
    for (std::int64_t k = 0; k < columns_; k += 8) {
      const std::uint32_t word = WordAt(bytes_, (n * columns_ + k) / 8);
      for (std::int64_t i = 0; i < 8; ++i) {
        const auto code = static_cast<std::int32_t>((word >> static_cast<unsigned>(4 * i)) & 0xfU);
        out[k + i] = static_cast<float>(code - 8);
      }
    }
  }

  const RawProjection& raw_;
  const GroupScales& groups_;
  const bool scaled_;  // the scales of groups are in the values
  const std::int64_t rows_;
  const std::int64_t columns_;
  const std::uint8_t* bytes_;
  const std::array<float, 256> e4m3_ = MakeE4m3Table();
  const std::array<float, 16> e2m1_ = MakeE2m1Table();
};

// The factors that stay outside the values.
WeightScales ScalesOf(const RawProjection& raw, const GroupScales& groups) {
  if (groups.apart()) return groups.Scales();
  switch (raw.quant.layout) {
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
      return {.blocks = FloatsOf(*raw.Find(TensorRole::kScale))};
    case QuantLayout::kFp8Tensor:
      return {.tensor = FloatAt(*raw.Find(TensorRole::kScale), 0)};
    case QuantLayout::kNvfp4ModelOpt:
      return {.tensor = FloatAt(*raw.Find(TensorRole::kGlobalScale), 0)};
    case QuantLayout::kNvfp4Compressed:
      return {.tensor = 1.0F / FloatAt(*raw.Find(TensorRole::kGlobalScale), 0)};
    case QuantLayout::kModelSlimW4A8:
      if (groups.any()) return {};
      return {.channels = FloatsOf(*raw.Find(TensorRole::kScale))};
    case QuantLayout::kFp8Channel:
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
    case QuantLayout::kModelSlimW4A4:
      return {.channels = FloatsOf(*raw.Find(TensorRole::kScale))};
    case QuantLayout::kBf16:
    case QuantLayout::kAwq:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kW4Afp8:
      break;
  }
  return {};
}

// The static scale of a projection's rows; larger for larger rows.
float InputScaleOf(const RawProjection& raw) {
  const RawTensor* scale = raw.Find(TensorRole::kInputScale);
  if (scale == nullptr) return 1;
  const float value = FloatAt(*scale, 0);
  return raw.quant.layout == QuantLayout::kNvfp4Compressed ? 1.0F / value : value;
}

// `layer_scale`: the largest of the layer's experts; `own`: of this one.
ActivationSpec SpecOf(const ProjectionQuant& quant, float layer_scale, float own) {
  switch (quant.layout) {
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
      return {quant.power_of_two_scales ? ActivationFormat::kFp8GroupPow2
                                        : ActivationFormat::kFp8Group};
    case QuantLayout::kFp8Tensor:
      if (quant.static_inputs) return {ActivationFormat::kFp8Static, layer_scale};
      return {ActivationFormat::kFp8Row};
    case QuantLayout::kFp8Channel:
      return {ActivationFormat::kFp8Row};
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
      return {ActivationFormat::kNvfp4, 1.0F / own};
    case QuantLayout::kW4Afp8:
      return {ActivationFormat::kFp8Static, layer_scale};
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
    case QuantLayout::kModelSlimW4A8:
      return {ActivationFormat::kInt8Row};
    case QuantLayout::kModelSlimW4A4:
      return {ActivationFormat::kInt4Row};
    case QuantLayout::kBf16:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kAwq:
      break;
  }
  return {};
}

}  // namespace

ProjectionValues ValuesOf(const RawProjection& projection) {
  const auto [rows, columns] = projection.size;
  ProjectionValues result;
  result.values.resize(static_cast<std::size_t>(rows * columns));
  const GroupScales groups(projection);
  result.scales = ScalesOf(projection, groups);
  if (const RawTensor* bias = projection.Find(TensorRole::kBias)) {
    for (std::int64_t n = 0; n < rows; ++n) result.bias.push_back(FloatAt(*bias, n));
  }
  if (projection.quant.layout == QuantLayout::kBf16) {
    const RawTensor& weight = *projection.Find(TensorRole::kWeight);
    std::memcpy(result.values.data(), weight.bytes.data(), weight.bytes.size());
    return result;
  }
  const RowReader reader(projection, groups);
  if (projection.quant.layout == QuantLayout::kAwq) {
    reader.AllOfAwq(result.values.data());
    return result;
  }
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t n = 0; n < rows; ++n) {
    reader.Row(n, row.data());
    Bf16* out = result.values.data() + n * columns;
    for (std::size_t k = 0; k < row.size(); ++k) out[k] = FloatToBf16(row[k]);
  }
  return result;
}

ExpertActivations ActivationsOf(const LayerQuant& quant, const RawExpert& expert,
                                const LayerInputScales& scales) {
  const float own_inputs = std::max(InputScaleOf(expert.of(Projection::kGate)),
                                    InputScaleOf(expert.of(Projection::kUp)));
  ExpertActivations activations{SpecOf(quant.of(Projection::kGate), scales.gate_up_max, own_inputs),
                                SpecOf(quant.of(Projection::kDown), scales.down_max,
                                       InputScaleOf(expert.of(Projection::kDown)))};
  // Kernels for INT4 rows exist for gate and up alone; down reads INT8 (msModelSlim's W4A4).
  if (activations.middle.format == ActivationFormat::kInt4Row) {
    activations.middle.format = ActivationFormat::kInt8Row;
  }
  return activations;
}

}  // namespace switchyard
