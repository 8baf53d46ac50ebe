// The experts of one layer of a checkpoint, as stored: checked against the layout that the quant
// config names, read one by one, never converted.
//
// Immutable; thread-safe. Borrows the checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/hash.h"
#include "core/moe_shape.h"
#include "model/quant/config/layer_quant.h"
#include "model/quant/layout/raw_projection.h"
#include "model/quant/layout/tensor_values.h"
#include "model/safetensors/checkpoint_tensors.h"

namespace switchyard {

// The three projections of one expert. Each keeps its own scales: gate and up of real NVFP4
// checkpoints have global scales that differ by up to ten times.
struct RawExpert {
  std::array<RawProjection, 3> projections;  // by Projection

  // The hashes of each projection's tensors, one after the other in the order of the layout, which
  // is the manifest's. Costs a SHA-256 over all bytes: some 0.8 ms for each MB.
  [[nodiscard]] std::array<Sha256Digest, 3> Stored() const;
  [[nodiscard]] const RawProjection& of(Projection projection) const {
    return projections[static_cast<std::size_t>(projection)];
  }
};

// Bytes of a file that belong to one projection of one expert.
struct TensorExtent {
  std::string name;
  std::uint64_t offset = 0;  // in the tensor: packed experts share one
  std::uint64_t bytes = 0;
};

// The static scales of the inputs over all experts of a layer. Scales that are stored as
// reciprocals are inverted, so a larger scale always means larger inputs. All 0 when the layout has
// none.
struct LayerInputScales {
  float gate_up_min = 0;
  float gate_up_max = 0;
  float down_min = 0;
  float down_max = 0;

  // 1 / scale of the rows that a layer receives; nullopt unless all its experts share one. NVFP4
  // rows are encoded once for all the experts that they go to, so with unequal scales rows travel
  // as BF16.
  [[nodiscard]] std::optional<float> InputGlobalScale() const;
};

// `tensors` outlives this. Experts are read one by one, so that a worker can load only its own.
class LayerExperts {
 public:
  LayerExperts(const CheckpointTensors& tensors, ExpertModules modules, LayerQuant quant,
               const MoeShape& shape);

  // Names, dtypes and shapes of all experts; reads no tensor.
  // Errors: (CHECKPOINT), metadata {kind, file, tensor}: TENSOR_NOT_FOUND, WRONG_DTYPE,
  // WRONG_SHAPE, UNEXPECTED_TENSOR, each with what was found and what was expected;
  // kInvalidArgument (BAD_CONFIG): sizes that the layout cannot hold.
  [[nodiscard]] absl::Status Check() const;

  // Errors: as Check, of that projection; WRONG_VALUE, naming the element: a value that
  // tensor_values.h or scale_range.h does not allow, such as a weight or a scale that is NaN.
  [[nodiscard]] absl::StatusOr<RawProjection> Load(std::int32_t expert,
                                                   Projection projection) const;
  // All three projections, each with its own scales.
  [[nodiscard]] absl::StatusOr<RawExpert> Load(std::int32_t expert) const;

  // The stored bytes of a projection, in the order of ExpectedTensors: a manifest hashes them.
  // Errors: as Check, of that projection.
  [[nodiscard]] absl::StatusOr<std::vector<TensorExtent>> Extents(std::int32_t expert,
                                                                  Projection projection) const;

  // Reads the input scales of all experts. Errors: as Load.
  [[nodiscard]] absl::StatusOr<LayerInputScales> InputScales() const;

  [[nodiscard]] const LayerQuant& quant() const { return quant_; }
  [[nodiscard]] const ExpertModules& modules() const { return modules_; }

 private:
  struct Located;  // an expected tensor and its place
  struct Share;
  [[nodiscard]] ProjectionSize SizeOf(Projection projection) const;
  // Where the tensors of a projection lie, in the order of the layout. LocatePacked: inside the
  // tensor that all experts share.
  [[nodiscard]] absl::StatusOr<std::vector<Located>> Locate(std::int32_t expert,
                                                            Projection projection) const;
  [[nodiscard]] absl::StatusOr<std::vector<Located>> LocatePacked(std::int32_t expert,
                                                                  Projection projection) const;
  // `shape` is that of one projection of one expert.
  [[nodiscard]] absl::StatusOr<Located> LocateShare(const std::string& name, TensorRole role,
                                                    const std::vector<std::int64_t>& shape,
                                                    const Share& share) const;
  [[nodiscard]] absl::StatusOr<RawTensor> Read(const Located& located) const;
  // Refuses tensors that the layout must not have, because they would change the weights.
  [[nodiscard]] absl::Status CheckForbidden(const std::string& module, QuantLayout layout) const;
  // Values by themselves, and then scales together with the codes that they multiply.
  [[nodiscard]] absl::Status CheckValues(const Located& located, const RawTensor& tensor,
                                         const RawProjection& projection) const;
  [[nodiscard]] absl::Status CheckScales(const std::vector<Located>& located,
                                         const RawProjection& projection) const;
  [[nodiscard]] absl::Status WrongValue(const Located& located, TensorDtype dtype,
                                        const ValueFault& fault) const;
  // nullopt when the layout has no input scales.
  [[nodiscard]] absl::StatusOr<std::optional<float>> InputScale(std::int32_t expert,
                                                                Projection projection) const;

  const CheckpointTensors& tensors_;
  const ExpertModules modules_;
  const LayerQuant quant_;
  const MoeShape shape_;
};

}  // namespace switchyard
