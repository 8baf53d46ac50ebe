// The memory that batches of one shape run in, one set for each class of work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "core/moe_shape.h"
#include "worker/device/device_backend.h"

namespace switchyard {

struct BatchOptions {
  // A batch of prefill may be larger than this where DeviceBackend::PrefillBatch says so; a batch
  // of decode never is.
  //
  // A batch takes requests up to this many rows, so that the requests behind it do not wait long; a
  // single request with more rows is a batch by itself. Weights are read once a pass of the
  // workspace.
  std::uint32_t rows_max = 1024;
  // (row, expert) pairs of a pass.
  std::int64_t pairs_max = 4096;
};

// The scratch of one stream. Immutable after Create; one batch uses it at a time, which the order
// of the stream guarantees. It lives as long as a batch that holds it, also when its epoch is
// dropped.
struct BatchMemory {
  // For batches of the size that `options` say. Errors: those of MakeWorkspace and Allocate.
  static absl::StatusOr<BatchMemory> Create(DeviceBackend* device, const MoeShape& shape,
                                            const BatchOptions& options);
  // For prefill batches as large as the device is worth, or of the usual size where it lacks the
  // memory for that. Errors: as Create.
  static absl::StatusOr<BatchMemory> CreateForPrefill(DeviceBackend* device, const MoeShape& shape,
                                                      const BatchOptions& options);

  std::uint32_t rows_max = 0;  // of a batch of several requests
  std::unique_ptr<Workspace> workspace;
  // For a device without host access: rows are copied to `rows`, and answers are copied from
  // `answers`. Each holds rows_max BF16 rows, the widest format. Null when the device reads host
  // memory.
  std::unique_ptr<Buffer> rows;
  std::unique_ptr<Buffer> answers;
};

// The scratch of an expert engine's streams for one shape. Epochs of one shape share it, so that a
// re-plan allocates nothing.
struct EpochMemory {
  // Costs one workspace, and perhaps two buffers, for each class. Errors: those of
  // BatchMemory::Create.
  static absl::StatusOr<std::shared_ptr<EpochMemory>> Create(DeviceBackend* device,
                                                             const MoeShape& shape,
                                                             const BatchOptions& options);

  MoeShape shape;
  std::array<BatchMemory, 2> by_class;  // kDecode, kPrefill
};

}  // namespace switchyard
