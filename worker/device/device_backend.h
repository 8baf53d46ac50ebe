// The device seam: memory of expert weights, codecs and expert kernels of one kind of device.
//
// Implementations: cpu/ (scalar, portable FP32, AVX-512, AMX BF16; chosen once at start by CPUID).
// An expert's output row depends on its input row and weights alone, never on the number, order or
// company of rows: one kernel family per process, one order of summation, no split-K, no atomics.
//
// Threads: a backend is immutable after Create and may be shared; a Workspace belongs to one caller
// at a time. Run, Encode and Decode allocate nothing, lock nothing, log nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/activation_format.h"
#include "core/capability.h"
#include "core/format/bf16.h"
#include "core/format/dtype.h"
#include "core/format/weight_scales.h"
#include "core/format/wire_format.h"
#include "core/moe_shape.h"

namespace switchyard {

// One expert, row-major as in the checkpoint: BF16 values and the scales that stay apart from them
// (core/format/weight_scales.h), so that those of quant schemes are exact. Each projection is
// y = w x + bias. Views; the owner outlives the call.
struct ExpertWeightsView {
  std::span<const Bf16> gate;  // [intermediate, hidden]
  std::span<const Bf16> up;    // [intermediate, hidden]
  std::span<const Bf16> down;  // [hidden, intermediate]
  WeightScalesView gate_scales{};
  WeightScalesView up_scales{};
  WeightScalesView down_scales{};
  std::span<const float> gate_bias{};  // [intermediate], or empty: none
  std::span<const float> up_bias{};    // [intermediate], or empty
  std::span<const float> down_bias{};  // [hidden], or empty
  ActivationSpec inputs{};             // what rows become before gate and up read them
  ActivationSpec middle{};             // and h before down does
};

// The largest finite magnitudes that one expert has seen: of its rows, and of h. Calibration of
// schemes with static scales asks for them.
struct ExpertAmax {
  float inputs = 0;
  float middle = 0;
};

// One expert's weights in the layout that the device's kernel reads. Immutable; shared by epochs.
class PackedExpert {
 public:
  virtual ~PackedExpert() = default;
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
};

// Scratch of a Run, sized once for `rows_max` rows and one shape.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

// Rows for one expert. y[i] = down(silu(gate(x_i)) * up(x_i)), not weighted, where x_i and the
// product in the middle are rounded as the expert's weights ask for.
// rows: BF16 [hidden] each, any alignment. out: FP32 [rows, hidden], row i after row i - 1.
struct ExpertBatch {
  const PackedExpert* expert = nullptr;
  std::span<const Bf16* const> rows;
  float* out = nullptr;
  ExpertAmax* amax = nullptr;  // raised by what these rows have; null: nobody asks
  // [rows], not 0 where a row has been rounded on its way (a quantised wire dtype): the expert
  // reads it as it is, for a second rounding would only add its error. Null: none has.
  const std::uint8_t* rounded = nullptr;
};

// Which codec is wanted.
struct CodecSpec {
  WireFormat format;
  // What NVFP4's block scales are relative to (core/format/nvfp4_scale.h): one number for all
  // experts of a layer. 1 for every other format.
  float global_scale = 1.0F;

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// Turns BF16 rows into one wire format and back. data and scales are `RowBytesOf(format, hidden)`
// bytes a row, rows densely after each other, at any address. Any hidden from 1. Never fails on
// data: what a NaN or an infinity makes of its row is the format's, and stays in that row.
// Immutable, thread-safe.
class Codec {
 public:
  virtual ~Codec() = default;
  [[nodiscard]] virtual WireFormat format() const = 0;
  [[nodiscard]] DispatchDtype dtype() const { return format().dtype; }
  // Gathers `rows` (each BF16 [hidden], any alignment) into `data` and `scales`.
  virtual void Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
                      std::byte* scales) const = 0;
  // [rows, hidden] BF16 into `out`.
  virtual void Decode(const std::byte* data, const std::byte* scales, std::int64_t rows,
                      std::int64_t hidden, Bf16* out) const = 0;
};

// Sums in the fixed order that bit-equality needs: element by element, terms in the order given,
// FP32. `hidden` elements; outputs do not overlap inputs.
class RowOps {
 public:
  virtual ~RowOps() = default;
  // out = bf16(((0 + w0*r0) + w1*r1) + ...), each step one fused multiply-add, rounded once.
  virtual void WeightedSum(std::span<const float* const> rows, std::span<const float> weights,
                           std::int64_t hidden, Bf16* out) const = 0;
  // out = ((0 + w0*r0) + w1*r1) + ..., each step one fused multiply-add, not rounded.
  virtual void WeightedSumBf16(std::span<const Bf16* const> rows, std::span<const float> weights,
                               std::int64_t hidden, float* out) const = 0;
  // out = (r0 + r1) + ...; zeros when there are no rows.
  virtual void SumBf16(std::span<const Bf16* const> rows, std::int64_t hidden,
                       float* out) const = 0;
  virtual void RoundToBf16(const float* in, std::int64_t count, Bf16* out) const = 0;
  // True when any element of the row is NaN.
  [[nodiscard]] virtual bool HasNan(const Bf16* row, std::int64_t hidden) const = 0;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // What this backend proved by running its golden vectors.
  [[nodiscard]] virtual const CapabilitySet& capabilities() const = 0;
  // Packs weights; costs about one copy. Errors: kInvalidArgument (BAD_SHAPE) when the views do not
  // fit `shape`, (BAD_CONFIG) for a scale that is not finite and above zero (of a channel or block:
  // not below, for it may hold zeros alone; of a group: finite); kUnimplemented (UNSUPPORTED) for a
  // rounding that the device lacks; kResourceExhausted (OUT_OF_MEMORY).
  virtual absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                             const ExpertWeightsView& weights) = 0;
  virtual absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                                   std::int64_t rows_max) = 0;
  // Runs every batch. All experts have the workspace's shape; rows summed over the batches are at
  // most its rows_max. Never fails on data: NaN in a row gives NaN in that row alone.
  virtual void Run(std::span<const ExpertBatch> batches, Workspace& workspace) = 0;
  // A codec that passed its self-test; for preparing a layer, not for each step.
  // It may outlive the backend. Errors: kUnimplemented (UNSUPPORTED) for a format that the device
  // does not have or that failed; kInvalidArgument (BAD_CONFIG) for an unusable global scale.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const = 0;
  [[nodiscard]] virtual const RowOps& row_ops() const = 0;
};

}  // namespace switchyard
