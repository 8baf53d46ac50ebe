// Work of one stream, captured once and run from a graph as often as a server would.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

#include "tests/cuda/device_buffer.h"

namespace switchyard::cuda::testing {

constexpr int kReplaysOfALongRun = 10'000;

// Captures what `work` enqueues and runs it kReplaysOfALongRun times; after each thousand the
// device is idle and `look` is called, which may stop the run by returning false.
inline void ReplayLong(const std::function<void(cudaStream_t)>& work,
                       const std::function<bool()>& look) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  work(stream);
  Check(cudaStreamEndCapture(stream, &graph), "end capture");
  Check(cudaGraphInstantiate(&run, graph, 0), "instantiate");
  bool goes_on = true;
  for (int i = 1; goes_on && i <= kReplaysOfALongRun; i++) {
    Check(cudaGraphLaunch(run, stream), "launch");
    if (i % 1000 != 0) continue;
    Check(cudaStreamSynchronize(stream), "replay");
    goes_on = look();
  }
  cudaGraphExecDestroy(run);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace switchyard::cuda::testing
