#include "model/experts/layer_experts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/layout/expected_tensors.h"
#include "model/quant/layout/scale_range.h"
#include "model/quant/layout/tensor_values.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string DtypesText(const std::vector<TensorDtype>& dtypes) {
  return absl::StrJoin(dtypes, " or ", [](std::string* out, TensorDtype dtype) {
    absl::StrAppend(out, TensorDtypeName(dtype));
  });
}

bool ShapeFits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& wanted) {
  // A single element is stored as [] by some tools and as [1] by others.
  if (!wanted.empty()) return shape == wanted;
  return shape.empty() || shape == std::vector<std::int64_t>{1};
}

// "element [3, 1]" of a tensor of `shape`; "it" where there is only one.
std::string ElementText(const std::vector<std::int64_t>& shape, std::int64_t index) {
  std::vector<std::int64_t> at(shape.size());
  std::int64_t count = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    at[i] = index % shape[i];
    index /= shape[i];
    count *= shape[i];
  }
  return count == 1 ? "it" : absl::StrCat("element ", ShapeText(at));
}

}  // namespace

// An expected tensor in the checkpoint: its name, and the range of its bytes that belongs to this
// projection.
struct LayerExperts::Located {
  std::string name;
  TensorRole role = TensorRole::kWeight;
  TensorDtype dtype = TensorDtype::kBf16;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Names one part of a packed tensor.
struct LayerExperts::Share {
  std::int32_t expert = 0;
  Projection projection = Projection::kGate;
};

std::array<Sha256Digest, 3> RawExpert::Stored() const {
  std::array<Sha256Digest, 3> hashes;
  for (std::size_t p = 0; p < hashes.size(); ++p) {
    Sha256Stream stored;
    for (const RawTensor& tensor : projections[p].tensors) stored.Update(tensor.bytes);
    hashes[p] = stored.Finish();
  }
  return hashes;
}

std::optional<float> LayerInputScales::InputGlobalScale() const {
  // A row is encoded once for all its experts, so they must agree on the scale.
  if (gate_up_max == 0 || gate_up_min != gate_up_max) return std::nullopt;
  return 1.0F / gate_up_max;
}

LayerExperts::LayerExperts(const CheckpointTensors& tensors, ExpertModules modules,
                           LayerQuant quant, const MoeShape& shape)
    : tensors_(tensors), modules_(std::move(modules)), quant_(std::move(quant)), shape_(shape) {}

ProjectionSize LayerExperts::SizeOf(Projection projection) const {
  if (projection == Projection::kDown) return {shape_.hidden, shape_.intermediate};
  return {shape_.intermediate, shape_.hidden};
}

// A tensor that the layout does not have means that the quant config describes other weights:
// reading them without it would give wrong numbers without an error.
absl::Status LayerExperts::CheckForbidden(const std::string& module, QuantLayout layout) const {
  for (const char* suffix : QuantLayoutInfoOf(layout).forbidden) {
    const std::string name = absl::StrCat(module, ".", suffix);
    if (tensors_.Find(name) == nullptr) continue;
    return MakeCheckpointError(
        Kind::kUnexpectedTensor,
        {.file = tensors_.FileOf(name), .tensor = name, .offset = std::nullopt},
        absl::StrCat("weights of layout ", QuantLayoutInfoOf(layout).name,
                     " have no such tensor; the quant config does not match the weights"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LayerExperts::Located>> LayerExperts::Locate(
    std::int32_t expert, Projection projection) const {
  if (modules_.packed) return LocatePacked(expert, projection);
  const ProjectionQuant& quant = quant_.of(projection);
  const std::string module = modules_.Name(expert, projection);
  SY_ASSIGN_OR_RETURN(const std::vector<ExpectedTensor> expected,
                      ExpectedTensors(quant, projection, SizeOf(projection)));
  SY_RETURN_IF_ERROR(CheckForbidden(module, quant.layout));
  const std::string layout = absl::StrCat("layout ", QuantLayoutInfoOf(quant.layout).name);
  std::vector<Located> located;
  for (const ExpectedTensor& wanted : expected) {
    const std::string name = absl::StrCat(module, ".", wanted.suffix);
    const TensorInfo* tensor = tensors_.Find(name);
    const CheckpointErrorPlace place{
        .file = tensor == nullptr ? tensors_.dir() : tensors_.FileOf(name),
        .tensor = name,
        .offset = std::nullopt};
    if (tensor == nullptr) {
      // Optional tensors do not change the weights.
      if (!wanted.required) continue;
      return MakeCheckpointError(
          Kind::kTensorNotFound, place,
          absl::StrCat(layout, " has this tensor (", DtypesText(wanted.dtypes), " ",
                       ShapeText(wanted.shape), "), but the checkpoint does not; is it complete?"));
    }
    if (std::find(wanted.dtypes.begin(), wanted.dtypes.end(), tensor->dtype) ==
        wanted.dtypes.end()) {
      return MakeCheckpointError(Kind::kWrongDtype, place,
                                 absl::StrCat("its dtype is ", TensorDtypeName(tensor->dtype), ", ",
                                              layout, " has ", DtypesText(wanted.dtypes)));
    }
    if (!ShapeFits(tensor->shape, wanted.shape)) {
      return MakeCheckpointError(Kind::kWrongShape, place,
                                 absl::StrCat("its shape is ", ShapeText(tensor->shape), ", ",
                                              layout, " has ", ShapeText(wanted.shape)));
    }
    located.push_back({name, wanted.role, tensor->dtype, tensor->shape, 0, tensor->bytes});
  }
  return located;
}

// One tensor holds gate above up of all experts, another one down; their biases are packed alike.
absl::StatusOr<std::vector<LayerExperts::Located>> LayerExperts::LocatePacked(
    std::int32_t expert, Projection projection) const {
  const std::string name = modules_.Name(expert, projection);
  const ProjectionSize size = SizeOf(projection);
  std::vector<Located> located;
  SY_ASSIGN_OR_RETURN(Located weight, LocateShare(name, TensorRole::kWeight,
                                                  {size.rows, size.columns}, {expert, projection}));
  located.push_back(std::move(weight));
  const std::string bias_name = absl::StrCat(name, "_bias");
  if (tensors_.Find(bias_name) == nullptr) return located;
  SY_ASSIGN_OR_RETURN(Located bias,
                      LocateShare(bias_name, TensorRole::kBias, {size.rows}, {expert, projection}));
  located.push_back(std::move(bias));
  return located;
}

absl::StatusOr<LayerExperts::Located> LayerExperts::LocateShare(
    const std::string& name, TensorRole role, const std::vector<std::int64_t>& shape,
    const Share& share) const {
  const bool down = share.projection == Projection::kDown;
  std::vector<std::int64_t> wanted = shape;
  if (!down) wanted.front() *= 2;
  // The outermost dimension is the expert.
  wanted.insert(wanted.begin(), modules_.experts);
  const TensorInfo* tensor = tensors_.Find(name);
  const CheckpointErrorPlace place{
      .file = tensor == nullptr ? tensors_.dir() : tensors_.FileOf(name),
      .tensor = name,
      .offset = std::nullopt};
  if (tensor == nullptr) {
    return MakeCheckpointError(
        Kind::kTensorNotFound, place,
        absl::StrCat("packed experts have this tensor (BF16 ", ShapeText(wanted),
                     "), but the checkpoint does not; is it complete?"));
  }
  if (tensor->dtype != TensorDtype::kBf16) {
    return MakeCheckpointError(Kind::kWrongDtype, place,
                               absl::StrCat("its dtype is ", TensorDtypeName(tensor->dtype),
                                            ", packed experts are served in BF16"));
  }
  if (tensor->shape != wanted) {
    return MakeCheckpointError(Kind::kWrongShape, place,
                               absl::StrCat("its shape is ", ShapeText(tensor->shape),
                                            ", packed experts have ", ShapeText(wanted)));
  }
  // Gate and up of an expert are one block of twice the rows, gate first.
  std::uint64_t bytes = sizeof(Bf16);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  const auto index = static_cast<std::uint64_t>(share.expert);
  const std::uint64_t offset =
      down ? index * bytes : index * 2 * bytes + (share.projection == Projection::kUp ? bytes : 0);
  return Located{name, role, tensor->dtype, shape, offset, bytes};
}

absl::Status LayerExperts::Check() const {
  for (std::int32_t expert = 0; expert < modules_.experts; ++expert) {
    for (const Projection projection : kAllProjections) {
      // Locating compares names, dtypes and shapes with headers that are already in memory.
      SY_RETURN_IF_ERROR(Locate(expert, projection).status());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RawTensor> LayerExperts::Read(const Located& located) const {
  RawTensor tensor{located.role, located.dtype, located.shape, {}};
  tensor.bytes.resize(located.bytes);
  SY_RETURN_IF_ERROR(tensors_.ReadRange(located.name, located.offset, tensor.bytes));
  return tensor;
}

absl::Status LayerExperts::CheckValues(const Located& located, const RawTensor& tensor,
                                       const RawProjection& projection) const {
  const std::optional<ValueFault> fault = FindValueFault(tensor, projection);
  return fault ? WrongValue(located, tensor.dtype, *fault) : absl::OkStatus();
}

absl::Status LayerExperts::CheckScales(const std::vector<Located>& located,
                                       const RawProjection& projection) const {
  // Each value was finite by itself; products of two scales may still overflow.
  const std::optional<ScaleFault> fault = FindScaleFault(projection);
  if (!fault) return absl::OkStatus();
  const auto at = std::find_if(located.begin(), located.end(),
                               [&](const Located& one) { return one.role == fault->role; });
  return WrongValue(*at, at->dtype, fault->value);
}

absl::Status LayerExperts::WrongValue(const Located& located, TensorDtype dtype,
                                      const ValueFault& fault) const {
  // The text counts elements of the whole tensor, which experts may share: that is where a reader
  // looks.
  const auto before = static_cast<std::int64_t>(located.offset * 8 / TensorDtypeBits(dtype));
  return MakeCheckpointError(
      Kind::kWrongValue,
      {.file = tensors_.FileOf(located.name), .tensor = located.name, .offset = std::nullopt},
      absl::StrCat(
          ElementText(tensors_.Find(located.name)->shape, before + fault.index), " ", fault.what,
          ". Copy the file again; if the error remains, the tool that wrote the file is faulty"));
}

absl::StatusOr<RawProjection> LayerExperts::Load(std::int32_t expert, Projection projection) const {
  SY_ASSIGN_OR_RETURN(const std::vector<Located> located, Locate(expert, projection));
  RawProjection raw{quant_.of(projection), SizeOf(projection), {}};
  for (const Located& one : located) {
    SY_ASSIGN_OR_RETURN(RawTensor tensor, Read(one));
    // Before the scales are combined: CheckScales assumes that each of them is finite.
    SY_RETURN_IF_ERROR(CheckValues(one, tensor, raw));
    raw.tensors.push_back(std::move(tensor));
  }
  SY_RETURN_IF_ERROR(CheckScales(located, raw));
  return raw;
}

absl::StatusOr<std::vector<TensorExtent>> LayerExperts::Extents(std::int32_t expert,
                                                                Projection projection) const {
  SY_ASSIGN_OR_RETURN(const std::vector<Located> located, Locate(expert, projection));
  std::vector<TensorExtent> extents;
  for (const Located& one : located) extents.push_back({one.name, one.offset, one.bytes});
  return extents;
}

absl::StatusOr<RawExpert> LayerExperts::Load(std::int32_t expert) const {
  RawExpert raw;
  for (const Projection projection : kAllProjections) {
    const auto index = static_cast<std::size_t>(projection);
    SY_ASSIGN_OR_RETURN(raw.projections[index], Load(expert, projection));
  }
  return raw;
}

absl::StatusOr<std::optional<float>> LayerExperts::InputScale(std::int32_t expert,
                                                              Projection projection) const {
  SY_ASSIGN_OR_RETURN(const std::vector<Located> located, Locate(expert, projection));
  const RawProjection size{quant_.of(projection), SizeOf(projection), {}};
  for (const Located& one : located) {
    if (one.role != TensorRole::kInputScale) continue;
    SY_ASSIGN_OR_RETURN(const RawTensor tensor, Read(one));
    SY_RETURN_IF_ERROR(CheckValues(one, tensor, size));
    return InputScaleIn(quant_.of(projection), tensor);
  }
  return std::nullopt;
}

absl::StatusOr<LayerInputScales> LayerExperts::InputScales() const {
  LayerInputScales scales;
  for (std::int32_t expert = 0; expert < modules_.experts; ++expert) {
    for (const Projection projection : kAllProjections) {
      SY_ASSIGN_OR_RETURN(const std::optional<float> scale, InputScale(expert, projection));
      // One expert without a scale means that the layout has none.
      if (!scale.has_value()) return LayerInputScales{};
      const bool down = projection == Projection::kDown;
      float& least = down ? scales.down_min : scales.gate_up_min;
      float& most = down ? scales.down_max : scales.gate_up_max;
      least = most == 0 ? *scale : std::min(least, *scale);
      most = std::max(most, *scale);
    }
  }
  return scales;
}

}  // namespace switchyard
