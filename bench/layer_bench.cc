// One MoE layer of the shipped model by way and batch: in this process, through four workers over
// shared memory, tcp, and as gRPC bytes through a gateway. `floor_us` is memcpy of the rows that
// travel (in process: of the layer's weights) in the same iteration, `ratio` the median quotient.
//
//   layer_bench [MODEL] --benchmark_filter='gateway/.*'
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <benchmark/benchmark.h>

#include "bench/copy_floor.h"
#include "bench/in_process_model.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"

namespace switchyard::bench {
namespace {

constexpr std::int32_t kWorkers = 4;
constexpr std::int32_t kTokensMax = 512;

// What all benchmarks share; made once, by main.
struct Setup {
  std::string model;
  std::unique_ptr<ServedModel> served;
  std::unique_ptr<InProcessModel> in_process;
};

template <typename Run>
void Steps(benchmark::State& state, std::size_t floor_bytes, Run run) {
  CopyFloor floor(floor_bytes);
  std::vector<double> steps;
  std::vector<double> copies;
  for (auto unused : state) {
    copies.push_back(SecondsOf([&] { floor.Copy(); }));
    steps.push_back(SecondsOf(run));
    state.SetIterationTime(steps.back());
  }
  state.counters["p50_us"] = Median(steps) * 1e6;
  state.counters["floor_us"] = Median(copies) * 1e6;
  state.counters["ratio"] = MedianRatio(steps, copies);
}

void Served(benchmark::State& state, const Setup& setup, const std::string& transport) {
  const auto tokens = static_cast<std::int32_t>(state.range(0));
  const ServedSession session =
      setup.served->Open({.transport = transport, .max_tokens = kTokensMax});
  MoeBatch batch(setup.in_process->shape(), tokens, 3);
  // A row goes to each worker that it needs, at most top_k of them, and one comes back.
  const std::size_t bytes =
      2 * batch.x.size() * sizeof(Bf16) *
      static_cast<std::size_t>(std::min(kWorkers, setup.in_process->shape().top_k));
  const StepRequest request = batch.Request(LayerId{0});
  Steps(state, bytes, [&] { session.Run(request); });
}

void InProcess(benchmark::State& state, const Setup& setup) {
  MoeBatch batch(setup.in_process->shape(), static_cast<std::int32_t>(state.range(0)), 3);
  const StepRequest request = batch.Request(LayerId{0});
  Steps(state, static_cast<std::size_t>(setup.in_process->weight_bytes()),
        [&] { setup.in_process->Run(request); });
}

void Register(const Setup& setup) {
  std::vector<benchmark::internal::Benchmark*> made = {benchmark::RegisterBenchmark(
      "in_process", [&setup](benchmark::State& state) { InProcess(state, setup); })};
  for (const char* transport : {"shm", "tcp", "gateway"}) {
    made.push_back(benchmark::RegisterBenchmark(
        transport,
        [&setup, transport](benchmark::State& state) { Served(state, setup, transport); }));
  }
  for (auto* each : made) {
    for (const int tokens : {1, 16, 128, kTokensMax}) each->Arg(tokens);
    each->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.2);
  }
}

void Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  Setup setup;
  setup.model = argc > 1 ? argv[1] : "models/sqlite-moe-7m";
  setup.served = std::make_unique<ServedModel>((self.parent_path().parent_path() / "bin").string(),
                                               setup.model, kWorkers);
  setup.in_process = std::make_unique<InProcessModel>(setup.model, 2, kTokensMax);
  Register(setup);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) { switchyard::bench::Main(argc, argv); }
