// Bytes for packed weights and scratch: 64-byte aligned; on huge pages where that pays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace switchyard {

// Owns its bytes; move-only. From 2 MiB up it is a private mapping that starts on a 2 MiB border
// and asks for transparent huge pages, because weights are read as one long stream and would
// otherwise miss the TLB every 4 KiB; below, it is plain heap memory.
class AlignedBuffer {
 public:
  // Contents are not initialized. Errors: kResourceExhausted (OUT_OF_MEMORY), naming the size.
  static absl::StatusOr<AlignedBuffer> Allocate(std::int64_t bytes);

  AlignedBuffer() = default;
  ~AlignedBuffer() { Free(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // nullptr when default-constructed or moved from.
  [[nodiscard]] std::byte* data() const { return data_; }
  // As requested: what alignment adds is not counted.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  AlignedBuffer(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}
  // The size says which of the two kinds of memory it is.
  void Free();

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace switchyard
