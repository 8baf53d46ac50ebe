// Where the tensors of a group's step lie, and what has to be done about it: the group's device
// reads and writes them itself, or, where they are memory of the host, pinned memory takes their
// place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/format/bf16.h"
#include "core/format/dtype.h"
#include "core/moe_shape.h"
#include "worker/device/device_backend.h"
#include "worker/source/step_request.h"

namespace switchyard {

// Whether the device reaches none of a step's four tensors. False without tokens, and on a device
// that computes in memory of the host. Errors: kInvalidArgument (BAD_REQUEST) if it reaches some of
// them, naming the others.
absl::StatusOr<bool> NeedCopies(const DeviceBackend& device, absl::string_view device_name,
                                const StepRequest& request);
// kInvalidArgument (BAD_SHAPE) unless rows follow each other and x and y are at multiples of 16
// bytes.
absl::Status CheckDense(const StepRequest& request, std::int32_t hidden);
// kInvalidArgument (BAD_REQUEST) for a deadline other than the session's: all ranks wait for each
// other as long as the group was granted, and y is not free before.
absl::Status CheckDeadline(const StepRequest& request, Duration session);
// As CheckRouting, for dense ids in memory of the host.
absl::Status CheckStepIds(const StepRequest& request, std::int32_t experts);

// Pinned memory for the steps of one slot. Its thread copies. Not thread-safe.
class HostTensors {
 public:
  struct Size {
    MoeShape shape;
    std::int32_t tokens_max = 0;
    OutputDtype y_dtype = OutputDtype::kF32;
  };
  // Errors: those of DeviceBackend::Allocate.
  static absl::StatusOr<std::unique_ptr<HostTensors>> Make(DeviceBackend* device, const Size& size);
  // Makes `tensors` anew where there is no room for `tokens`, at most as large as `most`: usual
  // steps have fewer tokens than a session may ask for. REQUIRES: nothing uses the former ones.
  static absl::Status Reserve(DeviceBackend* device, const Size& most, std::int32_t tokens,
                              std::unique_ptr<HostTensors>* tensors);

  // Copies x, ids and weights, and returns the request over the copies: dense, aligned to 256
  // bytes, y here too. `request` is valid, of at most tokens_max tokens, and its y stays valid
  // until Give.
  StepRequest Take(const StepRequest& request);
  // Copies y to where the last request has it.
  void Give() const;

 private:
  HostTensors(const Size& size, std::unique_ptr<Buffer> memory);

  Size size_;
  std::unique_ptr<Buffer> memory_;
  Bf16* x_ = nullptr;            // [tokens_max, hidden]
  std::int32_t* ids_ = nullptr;  // [tokens_max, top_k]
  float* weights_ = nullptr;     // [tokens_max, top_k]
  std::byte* y_ = nullptr;       // [tokens_max, hidden] in y_dtype
  StepRequest request_;
};

}  // namespace switchyard
