// How device figures are taken (docs/PERFORMANCE.md): operations captured in a graph, weights or
// rows rotated over more memory than the L2 holds, medians over many replays. Two forms:
//
//   chain   operations back to back in one graph, time / operations: what a layer of a model pays
//   event   [flush of the L2, event, one operation, event] in a graph: includes the empty event
//   pair
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda/device_buffer.h"

namespace switchyard::cuda::bench {

struct Figure {
  double p50 = 0;
  double p99 = 0;
  double least = 0;
};
Figure Summarize(std::vector<double> microseconds);

class DeviceRig {
 public:
  DeviceRig();
  ~DeviceRig();
  DeviceRig(const DeviceRig&) = delete;
  DeviceRig& operator=(const DeviceRig&) = delete;

  // `operation(stream, i)` enqueues operation i. Microseconds of one operation.
  using Operation = std::function<void(cudaStream_t stream, int i)>;
  Figure Chain(const Operation& operation, int operations, int replays = 200);
  // Replays graphs of operations 0..variants-1 in turn.
  Figure Event(const Operation& operation, int variants, int replays = 200);
  // What Event measures of nothing.
  double EmptyEvent();

  [[nodiscard]] cudaStream_t stream() const { return stream_; }

 private:
  cudaGraphExec_t Capture(const std::function<void()>& enqueue, bool flush);
  double Replay(cudaGraphExec_t graph);

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  testing::DeviceBuffer<std::byte> flushed_;
};

// Ends the process with status 9 when a case runs longer than `seconds`; 0 takes it back.
void Watchdog(unsigned seconds);

// What a benchmark was asked for.
struct Options {
  bool sweep = false;     // --sweep: every plan, for choosing one
  bool list = false;      // --list: names of the cases, one a line
  bool ceilings = false;  // --ceilings: measure them although --case is given
  std::string only;       // --case NAME: one case
  std::string json_path;  // --json PATH: figures as JSON lines, appended
};
Options ParseOptions(int argc, char** argv);
// False for a case that `options` leave out; prints its name for --list.
bool IsWanted(const Options& options, const std::string& name);

struct Column {
  std::string name;
  double value;
};
// Prints one row, and appends it to the JSON file if there is one.
void Report(const Options& options, const std::string& name, const std::vector<Column>& columns);

// Prints the device and its ceilings: plain read and copy of 2 GB.
void ReportCeilings(const Options& options, DeviceRig* rig);

}  // namespace switchyard::cuda::bench
