#include "worker/expert/batch_memory.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "core/format/wire_format.h"

namespace switchyard {

absl::StatusOr<BatchMemory> BatchMemory::Create(DeviceBackend* device, const MoeShape& shape,
                                                const BatchOptions& options) {
  BatchMemory memory;
  memory.rows_max = options.rows_max;
  SY_ASSIGN_OR_RETURN(memory.workspace, device->MakeWorkspace(shape, options.pairs_max));
  if (device->host_access()) return memory;
  // The widest format sizes the buffers, because an epoch with another dispatch dtype shares them.
  const auto bytes = static_cast<std::size_t>(options.rows_max) *
                     static_cast<std::size_t>(RowBytesOf(kBf16Format, shape.hidden).total());
  SY_ASSIGN_OR_RETURN(memory.rows, device->Allocate(bytes, MemoryKind::kDevice));
  SY_ASSIGN_OR_RETURN(memory.answers, device->Allocate(bytes, MemoryKind::kDevice));
  return memory;
}

absl::StatusOr<BatchMemory> BatchMemory::CreateForPrefill(DeviceBackend* device,
                                                          const MoeShape& shape,
                                                          const BatchOptions& options) {
  const BatchSize usual{.rows = options.rows_max, .pairs = options.pairs_max};
  const BatchSize large = device->PrefillBatch(shape, usual);
  // Most devices gain nothing from larger batches, and memory is the experts'.
  if (large == usual) return Create(device, shape, options);
  absl::StatusOr<BatchMemory> memory =
      Create(device, shape, {.rows_max = large.rows, .pairs_max = large.pairs});
  // Weights come before speed: a device that they fill serves with short batches.
  if (memory.ok() || memory.status().code() != absl::StatusCode::kResourceExhausted) return memory;
  return Create(device, shape, options);
}

absl::StatusOr<std::shared_ptr<EpochMemory>> EpochMemory::Create(DeviceBackend* device,
                                                                 const MoeShape& shape,
                                                                 const BatchOptions& options) {
  auto memory = std::make_shared<EpochMemory>();
  memory->shape = shape;
  SY_ASSIGN_OR_RETURN(memory->by_class[static_cast<std::size_t>(WorkClass::kDecode)],
                      BatchMemory::Create(device, shape, options));
  SY_ASSIGN_OR_RETURN(memory->by_class[static_cast<std::size_t>(WorkClass::kPrefill)],
                      BatchMemory::CreateForPrefill(device, shape, options));
  return memory;
}

}  // namespace switchyard
