// The calling thread's current CUDA context, as the device's calls leave it.
//
// A call makes its own device the thread's current one. Where the thread is an engine's, which
// works on another device, that would send the engine's next kernels to the wrong place: such a
// call keeps what it found. Threads that have no context get the device's, which costs them nothing
// in the next call.
#pragma once

#include <cuda.h>

namespace switchyard {

// Of the driver; null where it does not have them, and then nothing is kept.
struct ContextCalls {
  CUresult (*get)(CUcontext* current) = nullptr;
  CUresult (*set)(CUcontext current) = nullptr;
};
ContextCalls FindContextCalls();

// Takes well below a microsecond.
class KeptContext {
 public:
  explicit KeptContext(const ContextCalls& calls) : calls_(calls) {
    if (calls_.get == nullptr || calls_.get(&found_) != CUDA_SUCCESS) found_ = nullptr;
  }
  ~KeptContext() {
    CUcontext left = nullptr;
    if (found_ == nullptr || calls_.get(&left) != CUDA_SUCCESS || left == found_) return;
    (void)calls_.set(found_);
  }
  KeptContext(const KeptContext&) = delete;
  KeptContext& operator=(const KeptContext&) = delete;

 private:
  const ContextCalls& calls_;
  CUcontext found_ = nullptr;
};

}  // namespace switchyard
