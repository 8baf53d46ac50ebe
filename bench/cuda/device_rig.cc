#include "bench/cuda/device_rig.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <unistd.h>

#include "tests/cuda/device_kernels.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;

constexpr std::int64_t kFlushBytes = std::int64_t{320} << 20;
constexpr int kWarmUps = 5;

void WatchdogFired(int /*signal*/) {
  constexpr char kMessage[] = "watchdog: the case ran past its limit\n";
  if (write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) _exit(10);
  _exit(9);
}

}  // namespace

Figure Summarize(std::vector<double> microseconds) {
  std::sort(microseconds.begin(), microseconds.end());
  const auto at = [&](double share) {
    const auto i = static_cast<std::size_t>(share * static_cast<double>(microseconds.size()));
    return microseconds[std::min(i, microseconds.size() - 1)];
  };
  return {at(0.5), at(0.99), microseconds.front()};
}

DeviceRig::DeviceRig() : flushed_(kFlushBytes) {
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  Check(cudaEventCreate(&begin_), "event");
  Check(cudaEventCreate(&end_), "event");
}

DeviceRig::~DeviceRig() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
  cudaStreamDestroy(stream_);
}

cudaGraphExec_t DeviceRig::Capture(const std::function<void()>& enqueue, bool flush) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
  if (flush) testing::Flush(flushed_.get(), flushed_.count(), stream_);
  Check(cudaEventRecordWithFlags(begin_, stream_, cudaEventRecordExternal), "record");
  enqueue();
  Check(cudaEventRecordWithFlags(end_, stream_, cudaEventRecordExternal), "record");
  Check(cudaStreamEndCapture(stream_, &graph), "end capture");
  Check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  Check(cudaGraphDestroy(graph), "destroy graph");
  return executable;
}

double DeviceRig::Replay(cudaGraphExec_t graph) {
  Check(cudaGraphLaunch(graph, stream_), "replay");
  Check(cudaStreamSynchronize(stream_), "replay");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "elapsed");
  return static_cast<double>(milliseconds) * 1e3;
}

Figure DeviceRig::Chain(const Operation& operation, int operations, int replays) {
  const cudaGraphExec_t graph = Capture(
      [&] {
        for (int i = 0; i < operations; i++) operation(stream_, i);
      },
      false);
  std::vector<double> times;
  for (int i = 0; i < replays + kWarmUps; i++) {
    const double time = Replay(graph) / operations;
    if (i >= kWarmUps) times.push_back(time);
  }
  Check(cudaGraphExecDestroy(graph), "destroy");
  return Summarize(std::move(times));
}

Figure DeviceRig::Event(const Operation& operation, int variants, int replays) {
  std::vector<cudaGraphExec_t> graphs;
  for (int v = 0; v < variants; v++) {
    graphs.push_back(Capture([&] { operation(stream_, v); }, true));
  }
  std::vector<double> times;
  for (int i = 0; i < replays + kWarmUps; i++) {
    const double time = Replay(graphs[static_cast<std::size_t>(i % variants)]);
    if (i >= kWarmUps) times.push_back(time);
  }
  for (const cudaGraphExec_t graph : graphs) Check(cudaGraphExecDestroy(graph), "destroy");
  return Summarize(std::move(times));
}

double DeviceRig::EmptyEvent() {
  return Event([](cudaStream_t, int) {}, 1, 50).p50;
}

void Watchdog(unsigned seconds) {
  std::signal(SIGALRM, WatchdogFired);
  alarm(seconds);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--sweep") {
      options.sweep = true;
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--ceilings") {
      options.ceilings = true;
    } else if (word == "--case" && has_value) {
      options.only = argv[++i];
    } else if (word == "--json" && has_value) {
      options.json_path = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: %s [--sweep] [--list] [--ceilings] [--case NAME] [--json PATH]\n",
                   argv[0]);
      std::_Exit(2);
    }
  }
  if (!options.list && !testing::HasDevice()) {
    std::fprintf(stderr, "%s: no CUDA device\n", argv[0]);
    std::_Exit(1);
  }
  return options;
}

bool IsWanted(const Options& options, const std::string& name) {
  if (options.list) {
    std::printf("%s\n", name.c_str());
    return false;
  }
  return options.only.empty() || options.only == name;
}

void Report(const Options& options, const std::string& name, const std::vector<Column>& columns) {
  std::printf("%-28s", name.c_str());
  for (const Column& column : columns) std::printf(" | %s %.2f", column.name.c_str(), column.value);
  std::printf("\n");
  std::fflush(stdout);
  if (options.json_path.empty()) return;
  std::ofstream out(options.json_path, std::ios::app);
  out << "{\"case\": \"" << name << "\"";
  for (const Column& column : columns) {
    out << ", \"" << column.name << "\": ";
    // JSON has no NaN.
    std::isfinite(column.value) ? out << column.value : out << "null";
  }
  out << "}\n";
}

void ReportCeilings(const Options& options, DeviceRig* rig) {
  if (options.list || (!options.only.empty() && !options.ceilings)) return;
  Watchdog(30);
  cudaDeviceProp device{};
  Check(cudaGetDeviceProperties(&device, 0), "properties");
  std::printf("%s, %d SMs, L2 %d MB\n", device.name, device.multiProcessorCount,
              device.l2CacheSize >> 20);
  constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  const testing::DeviceBuffer<std::byte> from(kBytes);
  const testing::DeviceBuffer<std::byte> to(kBytes);
  const testing::DeviceBuffer<std::uint32_t> sink(1);
  testing::FillFp8(from.get(), kBytes, 1, 100.0F, rig->stream());
  const Figure read = rig->Chain(
      [&](cudaStream_t s, int) { testing::ReadOnce(from.get(), kBytes, sink.get(), s); }, 2, 20);
  const Figure copy = rig->Chain(
      [&](cudaStream_t s, int) { testing::CopyOnce(from.get(), to.get(), kBytes, s); }, 2, 20);
  Report(options, "ceilings",
         {{"read TB/s", kBytes / read.p50 / 1e6},
          {"copy TB/s (read + written)", 2.0 * kBytes / copy.p50 / 1e6},
          {"empty event pair us", rig->EmptyEvent()}});
}

}  // namespace switchyard::cuda::bench
