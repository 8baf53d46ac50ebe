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

#include <benchmark/benchmark.h>

#include "bench/copy_device.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"
#include "core/base/log.h"
#include "harness/in_process_deployment.h"

namespace switchyard::bench {
namespace {

// Narrow rows, because the batch memory of 256 workers, a quarter of a gigabyte each with rows of
// 7168, would not fit one machine. The experts only copy, so that their width is of no matter.
constexpr const char* kModel = "synthetic:hidden=1024,intermediate=8,experts=256,top_k=8,layers=1";
constexpr MoeShape kShape{.hidden = 1024, .intermediate = 8, .experts = 256, .top_k = 8};
constexpr std::int32_t kTokens = 128;
constexpr Duration kOpenMax = std::chrono::seconds(120);

double RssMib() {
  std::ifstream statm("/proc/self/statm");
  double all = 0;
  double resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void Session(benchmark::State& state) {
  Logger logger("bench", LogLevel::kError);
  std::atomic<std::int64_t> copying{0};  // nanoseconds, not looked at
  InProcessOptions deploy;
  deploy.checkpoint = kModel;
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
  MoeBatch batch(kShape, kTokens, 11);
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

BENCHMARK(Session)->RangeMultiplier(2)->Range(8, 256)->UseManualTime()->Unit(
    benchmark::kMicrosecond);

}  // namespace
}  // namespace switchyard::bench

BENCHMARK_MAIN();
