#include "worker/device/cuda/backend/upload_buffer.h"

#include <algorithm>
#include <cstring>

#include "core/base/status_macros.h"

namespace switchyard {

UploadBuffer::~UploadBuffer() {
  for (const cudaEvent_t event : left_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
}

absl::Status UploadBuffer::Reserve() {
  if (memory_.data() != nullptr) return absl::OkStatus();
  for (cudaEvent_t& event : left_) {
    if (event != nullptr) continue;
    SY_RETURN_IF_ERROR(
        fault_->Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"));
  }
  SY_ASSIGN_OR_RETURN(
      memory_, CudaMemory::Pinned(kPieces * kPieceBytes, *fault_, "copying weights to the device"));
  return absl::OkStatus();
}

absl::Status UploadBuffer::Copy(std::span<const std::byte> from, std::byte* to,
                                cudaStream_t stream) {
  SY_RETURN_IF_ERROR(Reserve());
  while (!from.empty()) {
    const std::span<const std::byte> piece = from.first(std::min(from.size(), kPieceBytes));
    std::byte* const pinned = memory_.data() + next_ * kPieceBytes;
    const cudaEvent_t left = left_[next_];
    next_ = (next_ + 1) % kPieces;
    // An event that was never recorded is complete.
    SY_RETURN_IF_ERROR(fault_->Check(cudaEventSynchronize(left), "copying weights"));
    std::memcpy(pinned, piece.data(), piece.size());
    SY_RETURN_IF_ERROR(
        fault_->Check(cudaMemcpyAsync(to, pinned, piece.size(), cudaMemcpyHostToDevice, stream),
                      "copying weights"));
    SY_RETURN_IF_ERROR(fault_->Check(cudaEventRecord(left, stream), "copying weights"));
    to += piece.size();
    from = from.subspan(piece.size());
  }
  return absl::OkStatus();
}

}  // namespace switchyard
