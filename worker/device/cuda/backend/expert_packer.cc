#include "worker/device/cuda/backend/expert_packer.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/status_macros.h"
#include "worker/device/cuda/narrow_weights.h"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard {
namespace {

using cuda::BytesOf;
using cuda::ExpertFacts;
using cuda::kPad;
using cuda::MatrixFacts;
using cuda::Padded;
using cuda::Route;
using cuda::WeightCode;

std::int64_t Lines(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// One projection, [outputs, k].
struct Projection {
  std::int64_t outputs = 0;
  std::int64_t k = 0;
  const WeightScalesView* scales = nullptr;
  std::span<const float> biases;
};

bool IsFp8(ActivationFormat format) {
  return format == ActivationFormat::kFp8Group || format == ActivationFormat::kFp8GroupPow2 ||
         format == ActivationFormat::kFp8Row || format == ActivationFormat::kFp8Static;
}

bool HasGroups(const ExpertWeightsView& view) {
  return !view.gate_scales.groups.empty() || !view.up_scales.groups.empty() ||
         !view.down_scales.groups.empty();
}

bool HasBlocks(const ExpertWeightsView& view) {
  return !view.gate_scales.blocks.empty() || !view.up_scales.blocks.empty() ||
         !view.down_scales.blocks.empty();
}

// Misfits of an expert, found in one pass over its values.
struct Misfits {
  cuda::CodeMisfits codes;
  cuda::NarrowMisfits narrow;
};

// The products of scaled_product.h run on every GPU.
Route PortableRouteOf(const Misfits& misfits) {
  if (misfits.codes.e4m3 == 0) return Route::kScaledE4m3;
  return misfits.codes.int8 == 0 ? Route::kScaledInt8 : Route::kScaledBf16;
}

Route RouteOf(const MoeShape& shape, const ExpertWeightsView& view, const Misfits& misfits) {
  const bool e4m3 = misfits.codes.e4m3 == 0;
  const bool fp8_rows = IsFp8(view.inputs.format) && IsFp8(view.middle.format);
  if (e4m3 && !HasGroups(view) && fp8_rows) return Route::kFp8;
  if (misfits.narrow.int4_signed == 0 && fp8_rows) return Route::kInt4Fp8;
  const bool sums_fit = Padded(std::max(shape.hidden, shape.intermediate)) <= cuda::kInt8KMax;
  if (misfits.codes.int8 == 0 && sums_fit && !HasGroups(view) && !HasBlocks(view) &&
      view.inputs.format == ActivationFormat::kInt8Row &&
      view.middle.format == ActivationFormat::kInt8Row) {
    return Route::kInt8;
  }
  if (misfits.narrow.int4 == 0) return Route::kInt4;
  if (misfits.narrow.e2m1 == 0 && !HasGroups(view) && !HasBlocks(view)) return Route::kE2m1;
  if (e4m3) return Route::kScaledE4m3;
  if (misfits.codes.int8 == 0) return Route::kScaledInt8;
  return HasGroups(view) || HasBlocks(view) ? Route::kScaledBf16 : Route::kBf16;
}

WeightCode CodeOf(Route route) {
  switch (route) {
    case Route::kFp8:
    case Route::kScaledE4m3:
      return WeightCode::kE4m3;
    case Route::kInt8:
    case Route::kScaledInt8:
      return WeightCode::kInt8;
    case Route::kBf16:
    case Route::kInt4:
    case Route::kInt4Fp8:
    case Route::kE2m1:
    case Route::kScaledBf16:
      break;
  }
  return WeightCode::kBf16;
}

// How many outputs share a scale along k; 0: there are none.
std::int32_t RowsOfScale(std::span<const Projection> parts, Route route) {
  std::int32_t rows = route == Route::kFp8 ? static_cast<std::int32_t>(kPad) : 0;
  for (const Projection& part : parts) {
    if (!part.scales->groups.empty()) return 1;
    if (!part.scales->blocks.empty()) rows = static_cast<std::int32_t>(kPad);
  }
  return rows;
}

// The scales of a projection along k, of each `rows` outputs of the padded matrix.
void AppendScales(const Projection& part, std::int64_t rows, std::vector<float>* out) {
  const std::int64_t blocks = ScaleBlocks(part.k);
  for (std::int64_t n = 0; n < Padded(part.outputs); n += rows) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      float scale = n < part.outputs ? 1.0F : 0.0F;
      if (!part.scales->blocks.empty() && n < part.outputs) {
        scale = part.scales->blocks[static_cast<std::size_t>(n / kScaleBlock * blocks + b)];
      }
      if (!part.scales->groups.empty() && n < part.outputs) {
        scale *= part.scales->groups[static_cast<std::size_t>(n * blocks + b)];
      }
      out->push_back(scale);
    }
  }
}

// Scales, output scales and biases of a matrix: on the host first, then at their place.
struct Factors {
  std::vector<float> values;
  std::int64_t scales = -1;  // index in values, or -1
  std::int64_t output_scales = -1;
  std::int64_t biases = -1;
  std::int32_t rows_of_scale = 0;

  explicit Factors(std::span<const Projection> parts, Route route)
      : rows_of_scale(RowsOfScale(parts, route)) {
    bool scaled = false;
    bool biased = false;
    for (const Projection& part : parts) {
      scaled = scaled || part.scales->tensor != 1.0F || !part.scales->channels.empty();
      biased = biased || !part.biases.empty();
    }
    if (rows_of_scale > 0) {
      scales = Begin();
      for (const Projection& part : parts) AppendScales(part, rows_of_scale, &values);
    }
    if (scaled) {
      output_scales = Begin();
      for (const Projection& part : parts) {
        AppendPadded(part, [&](std::size_t n) {
          const bool own = !part.scales->channels.empty();
          return part.scales->tensor * (own ? part.scales->channels[n] : 1.0F);
        });
      }
    }
    if (biased) {
      biases = Begin();
      for (const Projection& part : parts) {
        AppendPadded(part, [&](std::size_t n) { return part.biases.empty() ? 0 : part.biases[n]; });
      }
    }
  }

  // `at` is where the values lie.
  void PointTo(const std::byte* at, MatrixFacts* facts) const {
    const auto* floats = reinterpret_cast<const float*>(at);
    if (scales >= 0) facts->scales = floats + scales;
    if (output_scales >= 0) facts->output_scales = floats + output_scales;
    if (biases >= 0) facts->biases = floats + biases;
    facts->rows_of_scale = rows_of_scale;
  }

 private:
  std::int64_t Begin() {  // kernels read four values at once
    values.resize((values.size() + 3) / 4 * 4);
    return static_cast<std::int64_t>(values.size());
  }
  template <typename Value>
  void AppendPadded(const Projection& part, Value value) {
    for (std::int64_t n = 0; n < Padded(part.outputs); ++n) {
      values.push_back(n < part.outputs ? value(static_cast<std::size_t>(n)) : 0.0F);
    }
  }
};

}  // namespace

ExpertPacker::~ExpertPacker() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

// Grows and never shrinks: the experts of a model have one shape.
absl::Status ExpertPacker::Reserve(const MoeShape& shape) {
  if (stream_ == nullptr) {
    SY_RETURN_IF_ERROR(
        fault_->Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
  }
  const std::int64_t part = Lines(std::int64_t{shape.hidden} * shape.intermediate * 2);
  const std::int64_t coded = Lines(2 * Padded(shape.intermediate) * Padded(shape.hidden) * 2);
  const std::int64_t bytes = 3 * part + coded + Lines(sizeof(Misfits));
  part_bytes_ = part;
  if (scratch_.bytes() >= bytes) return absl::OkStatus();
  scratch_ = CudaMemory();
  SY_ASSIGN_OR_RETURN(scratch_, CudaMemory::OnDevice(bytes, *fault_, "packing an expert"));
  return absl::OkStatus();
}

absl::StatusOr<ExpertPacker::Choice> ExpertPacker::Upload(const MoeShape& shape,
                                                          const ExpertWeightsView& view) {
  const std::int64_t count = std::int64_t{shape.hidden} * shape.intermediate;
  std::byte* const tail = scratch_.data() + scratch_.bytes() - Lines(sizeof(Misfits));
  auto* const misfits = reinterpret_cast<Misfits*>(tail);
  Misfits found;
  SY_RETURN_IF_ERROR(
      fault_->Check(cudaMemsetAsync(misfits, 0, sizeof(found), stream_), "clearing a counter"));
  const Bf16* const parts[] = {view.gate.data(), view.up.data(), view.down.data()};
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::span<const Bf16> part(parts[i], static_cast<std::size_t>(count));
    SY_RETURN_IF_ERROR(
        upload_.Copy(std::as_bytes(part), scratch_.data() + i * part_bytes_, stream_));
    SY_RETURN_IF_ERROR(fault_->Check(
        cuda::FindCodeMisfits(Uploaded(i), count, &misfits->codes, stream_), "looking at weights"));
    const bool down = i == 2;
    const cuda::NarrowSource source{Uploaded(i), down ? shape.hidden : shape.intermediate,
                                    down ? shape.intermediate : shape.hidden};
    SY_RETURN_IF_ERROR(fault_->Check(cuda::FindNarrowMisfits(source, &misfits->narrow, stream_),
                                     "looking at weights"));
  }
  SY_RETURN_IF_ERROR(fault_->Check(
      cudaMemcpyAsync(&found, misfits, sizeof(found), cudaMemcpyDeviceToHost, stream_),
      "looking at weights"));
  SY_RETURN_IF_ERROR(fault_->Check(cudaStreamSynchronize(stream_), "looking at weights"));
  const Route route = portable_ ? PortableRouteOf(found) : RouteOf(shape, view, found);
  return Choice{.route = route, .code = CodeOf(route)};
}

absl::StatusOr<std::unique_ptr<PackedExpert>> ExpertPacker::Pack(const MoeShape& shape,
                                                                 const ExpertWeightsView& view) {
  SY_RETURN_IF_ERROR(Reserve(shape));
  SY_ASSIGN_OR_RETURN(const Choice choice, Upload(shape, view));
  const Projection gate_up[] = {
      {shape.intermediate, shape.hidden, &view.gate_scales, view.gate_bias},
      {shape.intermediate, shape.hidden, &view.up_scales, view.up_bias}};
  const Projection down[] = {{shape.hidden, shape.intermediate, &view.down_scales, view.down_bias}};
  const std::array<Factors, 2> factors{Factors(gate_up, choice.route), Factors(down, choice.route)};
  const std::int64_t middle = Padded(shape.intermediate);
  const std::int64_t hidden = Padded(shape.hidden);
  const cuda::GroupedRoute* const grouped = FindGrouped(choice.route);
  const std::int64_t weights = grouped != nullptr ? WeightBytesOf(grouped->type, middle, hidden)
                                                  : middle * hidden * BytesOf(choice.code);
  std::array<std::int64_t, 2> factor_bytes{};
  for (std::size_t m = 0; m < 2; ++m) {
    factor_bytes[m] = Lines(static_cast<std::int64_t>(factors[m].values.size() * sizeof(float)));
  }
  SY_ASSIGN_OR_RETURN(
      CudaMemory memory,
      CudaMemory::OnDevice(3 * weights + factor_bytes[0] + factor_bytes[1], *fault_, "an expert"));
  const auto rule = [](const ActivationSpec& spec) {
    return cuda::RoundingRule{static_cast<cuda::Rounding>(spec.format), spec.scale};
  };
  ExpertFacts facts;
  facts.route = choice.route;
  facts.inputs = rule(view.inputs);
  facts.middle = rule(view.middle);
  facts.gate_up.weights = memory.data();
  facts.down.weights = memory.data() + 2 * weights;
  std::byte* at = memory.data() + 3 * weights;
  for (std::size_t m = 0; m < 2; ++m) {
    factors[m].PointTo(at, m == 0 ? &facts.gate_up : &facts.down);
    SY_RETURN_IF_ERROR(fault_->Check(
        cudaMemcpyAsync(at, factors[m].values.data(), factors[m].values.size() * sizeof(float),
                        cudaMemcpyHostToDevice, stream_),
        "copying scales"));
    at += factor_bytes[m];
  }
  SY_RETURN_IF_ERROR(Store(shape, choice, facts));
  SY_RETURN_IF_ERROR(fault_->Check(cudaStreamSynchronize(stream_), "packing an expert"));
  return std::make_unique<CudaPackedExpert>(shape, std::move(memory), facts);
}

absl::Status ExpertPacker::StoreNarrow(const MoeShape& shape, const Choice& choice,
                                       const ExpertFacts& facts) {
  const std::int64_t middle = Padded(shape.intermediate);
  const cuda::WeightType type = FindGrouped(choice.route)->type;
  const auto pack = [&](std::int64_t part, const cuda::NarrowSource& from, const MatrixFacts& of,
                        std::int64_t rows_before) {
    auto* const to =
        const_cast<std::byte*>(of.weights) + WeightBytesOf(type, rows_before, Padded(from.columns));
    cuda::NarrowScales scales;
    if (of.scales != nullptr) {
      scales = {of.scales + rows_before / of.rows_of_scale * (Padded(from.columns) / kPad),
                of.rows_of_scale};
    }
    return fault_->Check(
        cuda::PackNarrow({Uploaded(part), from.rows, from.columns}, type, scales, to, stream_),
        "packing weights");
  };
  SY_RETURN_IF_ERROR(pack(0, {nullptr, shape.intermediate, shape.hidden}, facts.gate_up, 0));
  SY_RETURN_IF_ERROR(pack(1, {nullptr, shape.intermediate, shape.hidden}, facts.gate_up, middle));
  return pack(2, {nullptr, shape.hidden, shape.intermediate}, facts.down, 0);
}

absl::Status ExpertPacker::Store(const MoeShape& shape, const Choice& choice,
                                 const ExpertFacts& facts) {
  const cuda::GroupedRoute* const grouped = FindGrouped(choice.route);
  if (grouped != nullptr && IsNarrow(grouped->type)) return StoreNarrow(shape, choice, facts);
  const std::int64_t hidden = Padded(shape.hidden);
  const std::int64_t intermediate = Padded(shape.intermediate);
  const bool packs = grouped != nullptr;
  std::byte* const coded = scratch_.data() + 3 * part_bytes_;
  const auto place = [&](const MatrixFacts& matrix) {
    return packs ? coded : const_cast<std::byte*>(matrix.weights);
  };
  cuda::CodedMatrix matrix{Uploaded(0), shape.intermediate,  shape.hidden, intermediate,
                           hidden,      place(facts.gate_up)};
  SY_RETURN_IF_ERROR(StoreMatrix(matrix, choice));
  matrix.values = Uploaded(1);
  matrix.out += intermediate * hidden * BytesOf(choice.code);
  SY_RETURN_IF_ERROR(StoreMatrix(matrix, choice));
  const auto pack = [&](const MatrixFacts& to, std::int64_t n, std::int64_t k) {
    if (!packs) return absl::OkStatus();
    return fault_->Check(
        cuda::PackWeights({coded, nullptr}, grouped->type, cuda::WeightOrder::kRows128, n, k,
                          const_cast<std::byte*>(to.weights), stream_),
        "packing weights");
  };
  SY_RETURN_IF_ERROR(pack(facts.gate_up, 2 * intermediate, hidden));
  matrix = {Uploaded(2), shape.hidden, shape.intermediate, hidden, intermediate, place(facts.down)};
  SY_RETURN_IF_ERROR(StoreMatrix(matrix, choice));
  return pack(facts.down, hidden, intermediate);
}

absl::Status ExpertPacker::StoreMatrix(const cuda::CodedMatrix& matrix, const Choice& choice) {
  return fault_->Check(cuda::StoreCodes(matrix, choice.code, stream_), "storing weights");
}

static_assert(static_cast<int>(cuda::Rounding::kFp8Group) ==
              static_cast<int>(ActivationFormat::kFp8Group));
static_assert(static_cast<int>(cuda::Rounding::kNvfp4) ==
              static_cast<int>(ActivationFormat::kNvfp4));
static_assert(static_cast<int>(cuda::Rounding::kFp8Row) ==
              static_cast<int>(ActivationFormat::kFp8Row));
static_assert(static_cast<int>(cuda::Rounding::kInt4Row) ==
              static_cast<int>(kLastActivationFormat));

}  // namespace switchyard
