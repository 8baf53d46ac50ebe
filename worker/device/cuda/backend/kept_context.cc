#include "worker/device/cuda/backend/kept_context.h"

#include <cuda_runtime_api.h>

namespace switchyard {
namespace {

void* Find(const char* name) {
  constexpr unsigned kSince = 12000;  // a CUDA version that has both
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &symbol, kSince, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? symbol : nullptr;
}

}  // namespace

ContextCalls FindContextCalls() {
  ContextCalls calls;
  calls.get = reinterpret_cast<CUresult (*)(CUcontext*)>(Find("cuCtxGetCurrent"));
  calls.set = reinterpret_cast<CUresult (*)(CUcontext)>(Find("cuCtxSetCurrent"));
  if (calls.get == nullptr || calls.set == nullptr) return {};
  return calls;
}

}  // namespace switchyard
