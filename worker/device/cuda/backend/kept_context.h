// Calls on an engine's thread leave its state of CUDA as it was.
//
// A call makes its own device the thread's current one. If the engine works on another device, its
// next kernels would go to the wrong place. A thread without a context gets the device's.
// And while an engine captures a graph, calls such as allocations would end its capture; they are
// no part of it, and so the thread's mode lets them pass meanwhile.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace switchyard {

// They are the driver's. Null: it does not have them, and nothing is kept.
struct ContextCalls {
  CUresult (*get)(CUcontext* current) = nullptr;
  CUresult (*set)(CUcontext current) = nullptr;
};
ContextCalls FindContextCalls();

// While it lives, captures of graphs, whosever they are, forbid this thread no call and are not
// ended by one.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the thread's
};

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
  const RelaxedCapture relaxed_;
};

}  // namespace switchyard
