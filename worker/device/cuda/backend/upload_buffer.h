// Copies memory of any kind to a CUDA device through pinned memory of its own.
//
// cudaMemcpyAsync takes memory that is not pinned, too, but then copies of several threads take
// turns: 14 threads with four streams load experts no faster than with one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/backend/cuda_fault.h"
#include "worker/device/cuda/backend/cuda_memory.h"

namespace switchyard {

// Uses the current device. One thread at a time.
class UploadBuffer {
 public:
  // `fault` outlives it. Pins its memory, 8 MiB, at the first Copy.
  explicit UploadBuffer(CudaFault* fault) : fault_(fault) {}
  // The caller has waited for its copies.
  ~UploadBuffer();
  UploadBuffer(const UploadBuffer&) = delete;
  UploadBuffer& operator=(const UploadBuffer&) = delete;

  // `to` is memory of the device, of as many bytes, ready behind `stream`. `from` may go once this
  // returns, which is up to 4 MiB before the last of it arrives. Errors: kResourceExhausted
  // (OUT_OF_MEMORY): no pinned memory; the fault.
  absl::Status Copy(std::span<const std::byte> from, std::byte* to, cudaStream_t stream);

 private:
  static constexpr std::size_t kPieces = 2;  // one is filled while the other is on its way
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

  absl::Status Reserve();

  CudaFault* const fault_;
  CudaMemory memory_;
  std::array<cudaEvent_t, kPieces> left_{};  // recorded behind the last copy out of a piece
  std::size_t next_ = 0;
};

}  // namespace switchyard
