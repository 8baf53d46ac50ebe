// What a session costs as its workers grow in number: opening it, its memory, and a step. All of a
// deployment is real but the experts, which copy, and it lies in this process: coordinator, agents,
// rings and data threads of every worker share the machine's CPUs with the source. `plan_us` to
// `sum_us` are the parts of the source, `rss_mib` what opening added to the process: the rings of
// the source and of all workers.
//
//   scale_bench --benchmark_filter='Session/256'
#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_format.h"
#include <benchmark/benchmark.h>

#include "bench/copy_device.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"
#include "core/base/log.h"
#include "harness/in_process_deployment.h"

namespace switchyard::bench {
namespace {

// The experts only copy, so that their width is of no matter.
std::string ModelOf(std::int32_t hidden) {
  return absl::StrFormat("synthetic:hidden=%d,intermediate=8,experts=256,top_k=8,layers=1", hidden);
}
// The batch memory of a worker with rows of 7168, and what else it takes.
constexpr double kWideWorkerGib = 0.35;
constexpr std::int32_t kTokens = 128;
constexpr Duration kOpenMax = std::chrono::seconds(120);

double RssMib() {
  std::ifstream statm("/proc/self/statm");
  double all = 0;
  double resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void RunSession(benchmark::State& state, std::int32_t hidden) {
  Logger logger("bench", LogLevel::kError);
  std::atomic<std::int64_t> copying{0};  // nanoseconds, not looked at
  InProcessOptions deploy;
  deploy.checkpoint = ModelOf(hidden);
  deploy.workers = static_cast<std::int32_t>(state.range(0));
  deploy.logger = &logger;
  deploy.make_device = [&](std::size_t /*worker*/) { return MakeCopyDevice(&copying); };
  const auto deployment = OrExit(InProcessDeployment::Start(deploy));
  OrExit(deployment->WaitUntilServes(kOpenMax));
  ServedSession served;
  served.client = OrExit(deployment->MakeClient());
  OpenSessionRequest request;
  request.phase = Phase::kDecode;
  request.y_dtype = OutputDtype::kBf16;
  request.step_deadline = std::chrono::seconds(60);
  const double before_open = RssMib();
  const double open =
      SecondsOf([&] { served.session = OrExit(served.client->OpenWhenReady(request, kOpenMax)); });
  const double rss = RssMib() - before_open;
  MoeBatch batch({.hidden = hidden, .intermediate = 8, .experts = 256, .top_k = 8}, kTokens, 11);
  const StepRequest step = batch.Request(LayerId{0});
  served.Run(step);
  std::vector<double> steps;
  const StepTimes before = served.Times();
  for (auto unused : state) {
    steps.push_back(SecondsOf([&] { served.Run(step); }));
    state.SetIterationTime(steps.back());
  }
  const StepTimes after = served.Times();
  state.counters["open_ms"] = open * 1e3;
  state.counters["rss_mib"] = rss;
  state.counters["p50_us"] = Median(steps) * 1e6;
  state.counters["us_a_worker"] = Median(steps) * 1e6 / static_cast<double>(state.range(0));
  state.counters["plan_us"] = UsAStep(before, after, &StepTimes::plan_ns);
  state.counters["encode_us"] = UsAStep(before, after, &StepTimes::encode_ns);
  state.counters["send_us"] = UsAStep(before, after, &StepTimes::send_ns);
  state.counters["sum_us"] = UsAStep(before, after, &StepTimes::sum_ns);
}

void Session(benchmark::State& state) { RunSession(state, 1024); }
BENCHMARK(Session)->RangeMultiplier(2)->Range(8, 256)->UseManualTime()->Unit(
    benchmark::kMicrosecond);

// Rows as wide as those of DeepSeek-V3, where the machine has the memory for so many workers.
void WideSession(benchmark::State& state) {
  const double gib = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 30);
  const double needed = kWideWorkerGib * static_cast<double>(state.range(0));
  if (needed < gib) {
    RunSession(state, 7168);
    return;
  }
  for (auto unused : state) state.SetIterationTime(1e-6);
  state.SetLabel(absl::StrFormat("not run: needs %.0f GiB of memory", needed));
}

BENCHMARK(WideSession)
    ->RangeMultiplier(8)
    ->Range(8, 256)
    ->Iterations(50)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace switchyard::bench

BENCHMARK_MAIN();
