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
  // A batch takes requests up to this many rows, so that nobody waits long behind it; one request
  // with more rows is a batch by itself. Weights are read once a pass of the workspace.
  std::uint32_t rows_max = 1024;
  // (row, expert) pairs of a pass.
  std::int64_t pairs_max = 4096;
};

// Of one stream. Immutable after Create; used by one batch at a time.
struct BatchMemory {
  // Errors: those of MakeWorkspace and Allocate.
  static absl::StatusOr<BatchMemory> Create(DeviceBackend* device, const MoeShape& shape,
                                            const BatchOptions& options);

  std::unique_ptr<Workspace> workspace;
  // Where rows are copied to and answers from for a device without host access; else null. Each
  // holds rows_max BF16 rows, the widest format.
  std::unique_ptr<Buffer> rows;
  std::unique_ptr<Buffer> answers;
};

// Of the streams of an expert engine, for one shape. Epochs of one shape share it.
struct EpochMemory {
  static absl::StatusOr<std::shared_ptr<EpochMemory>> Create(DeviceBackend* device,
                                                             const MoeShape& shape,
                                                             const BatchOptions& options);

  MoeShape shape;
  std::array<BatchMemory, 2> by_class;  // kDecode, kPrefill
};

}  // namespace switchyard
