#include "worker/expert/batch_memory.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "core/format/wire_format.h"

namespace switchyard {

absl::StatusOr<BatchMemory> BatchMemory::Create(DeviceBackend* device, const MoeShape& shape,
                                                const BatchOptions& options) {
  BatchMemory memory;
  SY_ASSIGN_OR_RETURN(memory.workspace, device->MakeWorkspace(shape, options.pairs_max));
  if (device->host_access()) return memory;
  // The widest format sizes the buffers, because an epoch with another dispatch dtype shares them.
  const auto bytes = static_cast<std::size_t>(options.rows_max) *
                     static_cast<std::size_t>(RowBytesOf(kBf16Format, shape.hidden).total());
  SY_ASSIGN_OR_RETURN(memory.rows, device->Allocate(bytes, MemoryKind::kDevice));
  SY_ASSIGN_OR_RETURN(memory.answers, device->Allocate(bytes, MemoryKind::kDevice));
  return memory;
}

absl::StatusOr<std::shared_ptr<EpochMemory>> EpochMemory::Create(DeviceBackend* device,
                                                                 const MoeShape& shape,
                                                                 const BatchOptions& options) {
  auto memory = std::make_shared<EpochMemory>();
  memory->shape = shape;
  for (BatchMemory& of_class : memory->by_class) {
    SY_ASSIGN_OR_RETURN(of_class, BatchMemory::Create(device, shape, options));
  }
  return memory;
}

}  // namespace switchyard
