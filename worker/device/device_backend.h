// The device seam: what a kind of device must do for a participant.
//
// A device gives out memory, packs experts, and runs batches on streams (stream.h): experts over
// rows in their wire format, encoding, sums. Work completes on events. No call of a stream waits
// for work, so that the thread that polls rings keeps polling; Pack and destructors may.
// Implementations: cpu/ (scalar, portable FP32, AVX-512, AMX BF16; chosen once at start by CPUID)
// on host/, which is for every device that computes in host memory, and cuda/ in builds with
// SWITCHYARD_CUDA.
//
// An expert's output row depends on its input row and weights only, never on the number, order or
// company of rows: one kernel family per process, one order of summation, no split-K, no atomics.
//
// Threads: a backend may be shared by threads; a Stream and a Workspace belong to one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/activation_format.h"
#include "core/capability.h"
#include "core/format/bf16.h"
#include "core/format/dtype.h"
#include "core/format/weight_scales.h"
#include "core/format/wire_format.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "worker/device/exchange.h"
#include "worker/device/memory.h"
#include "worker/device/stream.h"

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

// One expert's weights in the layout that the device's kernel reads. Immutable; shared by epochs.
class PackedExpert {
 public:
  virtual ~PackedExpert() = default;
  // The memory that it occupies, padding included; counted against a worker's weight_bytes_max.
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
};

// Experts of one layer by slot, in the form that the device's kernels look them up in. Keeps the
// experts alive.
class ExpertTable {
 public:
  virtual ~ExpertTable() = default;
  [[nodiscard]] virtual std::int32_t slots() const = 0;
};

// The expert in one slot. Its id is where ExpertAmax is recorded.
struct TableEntry {
  ExpertId expert;
  std::shared_ptr<const PackedExpert> weights;
};

// Scratch of the runs of one stream, sized once for one shape.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

// The parameters of a codec. Codecs of equal specs are interchangeable.
struct CodecSpec {
  WireFormat format;
  // The number that NVFP4's block scales are relative to (core/format/nvfp4_scale.h), one for all
  // experts of a layer. 1 for every other format.
  float global_scale = 1.0F;

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// The size of batches: rows of requests together, and (row, expert) pairs of one pass over them.
struct BatchSize {
  std::uint32_t rows = 0;
  std::int64_t pairs = 0;

  friend bool operator==(const BatchSize&, const BatchSize&) = default;
};

// A wire format as this device encodes and decodes it, in Stream::Encode and in the load stage of
// Stream::Run. data and scales are `RowBytesOf(format, hidden)` bytes a row, rows densely after
// each other, at any address. Any hidden from 1. Never fails on data: how NaN and infinity are
// encoded depends on the format; they affect only their own row. Immutable, thread-safe.
class Codec {
 public:
  virtual ~Codec() = default;
  [[nodiscard]] virtual WireFormat format() const = 0;
  // NVFP4's; 1 for the others.
  [[nodiscard]] virtual float global_scale() const { return 1.0F; }
  [[nodiscard]] DispatchDtype dtype() const { return format().dtype; }
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // The abilities that this backend proved by running its golden vectors. Constant after creation.
  [[nodiscard]] virtual const CapabilitySet& capabilities() const = 0;
  // True when rows, scales and outputs of runs may lie in kHost memory, such as a mapped ring.
  // False: the caller copies them to kDevice or kPinnedHost memory and back (Stream::Copy).
  [[nodiscard]] virtual bool host_access() const = 0;
  // Contents are undefined. Errors: kResourceExhausted (OUT_OF_MEMORY), naming the size.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes, MemoryKind kind) = 0;
  // The kind of the memory at `address`, whoever gave it out. kHost is what the device does not
  // reach by itself; where host_access() is true, all memory is. Takes well below a microsecond.
  // Errors: kInvalidArgument (BAD_REQUEST) for memory of another device.
  [[nodiscard]] virtual absl::StatusOr<MemoryKind> KindAt(const void* /*address*/) const {
    return MemoryKind::kHost;
  }
  // Lets the device reach `memory`, such as a ring, so that copies from it and to it cost the host
  // nothing, and Stream::Encode and Stream::Sum write and read rows there. Pins its pages, which
  // takes some milliseconds for each 100 MB. Null where the device has no use for it or the system
  // refuses: copies work as before.
  virtual std::unique_ptr<HostMapping> MapHost(std::span<std::byte> /*memory*/) { return nullptr; }
  // Memory that devices of other processes of the host reach by its key, as long as it exists; for
  // rows that go from device to device. Takes milliseconds, as its destruction does, so it is for
  // threads that have time. It may outlive the backend. Errors: kUnimplemented (UNSUPPORTED) for a
  // device that shares none; kResourceExhausted (OUT_OF_MEMORY), also beyond what this device may
  // share.
  virtual absl::StatusOr<SharedBuffer> AllocateShared(std::size_t bytes);
  // The first `bytes` of what a device of another process has allocated to share, for the streams
  // of this one. They stay when the other side frees its buffer or ends. The key comes from that
  // process and is not trusted. As costly as AllocateShared, and may outlive the backend too.
  // Errors: kUnimplemented (UNSUPPORTED) for a device that shares none; kInvalidArgument
  // (BAD_REQUEST) for a key that is none, or of less memory; kFailedPrecondition (UNSUPPORTED)
  // where that memory cannot be reached from here.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> OpenShared(absl::string_view key,
                                                             std::size_t bytes);
  // Rank `rank` of a group of devices (exchange.h), with memory for the others to write into; takes
  // milliseconds. Errors: kUnimplemented (UNSUPPORTED) for a device that joins no groups, or not of
  // this wire format; kInvalidArgument (BAD_SHAPE) for a group that it has no kernels for;
  // kResourceExhausted (OUT_OF_MEMORY).
  virtual absl::StatusOr<std::unique_ptr<Exchange>> MakeExchange(const ExchangeSpec& spec,
                                                                 std::int32_t rank);
  // Packs weights; costs about one copy and may wait for the device, so it is for staging threads.
  // A device may keep them quantized. Errors: kInvalidArgument (BAD_SHAPE) when the views do not
  // fit `shape`; kInvalidArgument (BAD_CONFIG) for a scale that is not finite, one of a tensor that
  // is not above zero, or one of a channel or block below zero; kUnimplemented (UNSUPPORTED) for a
  // rounding that the device lacks; kResourceExhausted (OUT_OF_MEMORY).
  virtual absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                             const ExpertWeightsView& weights) = 0;
  // A table of experts that this device packed, by slot. Errors: kResourceExhausted.
  virtual absl::StatusOr<std::unique_ptr<ExpertTable>> MakeTable(
      std::vector<TableEntry> entries) = 0;
  // The largest batches of prefill that this device is worth being given, not below `usual`, with
  // scratch that it can spare. Larger ones wait longer and run no faster.
  [[nodiscard]] virtual BatchSize PrefillBatch(const MoeShape& /*shape*/,
                                               const BatchSize& usual) const {
    return usual;
  }
  // From how many bytes of BF16 rows on a step whose tensors lie on this device is faster when the
  // device encodes its rows into mapped memory and sums the answers from there than when its
  // tensors pass through memory of the host, where a CPU does both. The largest value: never.
  [[nodiscard]] virtual std::size_t source_bytes_min() const {
    return std::numeric_limits<std::size_t>::max();
  }
  // For runs over experts of `shape` on one stream. `pairs_max` is a hint of (row, expert) pairs:
  // larger runs go in several passes. It is at least the top-k. Errors: kInvalidArgument
  // (BAD_SHAPE, BAD_CONFIG); kResourceExhausted (OUT_OF_MEMORY).
  virtual absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                                   std::int64_t pairs_max) = 0;
  // A codec that passed its self-test; for preparing a layer, not for each step.
  // It may outlive the backend. Errors: kUnimplemented (UNSUPPORTED) for a format that the device
  // does not have or that failed; kInvalidArgument (BAD_CONFIG) for an unusable global scale.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const = 0;
  // Errors: kResourceExhausted (OUT_OF_MEMORY). Streams are destroyed before their device.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamOptions options) = 0;
};

}  // namespace switchyard
