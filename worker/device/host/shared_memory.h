// Memory of this process that other processes of the same user reach by a key: a file without a
// name (memfd), which every process maps that has opened it.
//
// A key says where the owner's process holds the file, and repeats a random tag of 128 bits that
// the file begins with, so that a stale key never opens another file. It comes from another process
// and is not trusted. Owner and opener are of one PID namespace. Pages stay for those that have
// mapped them when the owner frees its buffer or ends.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/device/memory.h"

namespace switchyard {

// Zeros, all reserved: whoever touches them later meets no lack of memory. Errors:
// kResourceExhausted (OUT_OF_MEMORY).
absl::StatusOr<SharedBuffer> AllocateHostShared(std::size_t bytes);
// The first `bytes` of it. Errors: kInvalidArgument (BAD_REQUEST) for a key that is none, or of
// less memory; kFailedPrecondition (UNSUPPORTED) where that memory cannot be reached from here, and
// when its owner has ended.
absl::StatusOr<std::unique_ptr<Buffer>> OpenHostShared(absl::string_view key, std::size_t bytes);

}  // namespace switchyard
