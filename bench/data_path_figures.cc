#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "bench/copy_device.h"
#include "bench/copy_floor.h"
#include "bench/figures.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"
#include "core/base/log.h"
#include "harness/in_process_deployment.h"

namespace switchyard::bench {
namespace {

// The experts only copy, so their width is of no matter but to those who hash the weights.
constexpr const char* kModel = "synthetic:hidden=2048,intermediate=64,experts=64,top_k=8,layers=1";
constexpr MoeShape kShape{.hidden = 2048, .intermediate = 64, .experts = 64, .top_k = 8};
constexpr std::int32_t kTokens = 128;
constexpr std::int32_t kWorkers = 2;
constexpr int kStepsAPass = 10;

// Rows that travel to workers in one step; as many come back.
std::size_t RowsOf(const MoeBatch& batch, DispatchMode mode) {
  if (mode == DispatchMode::kLowLatency) return batch.ids.size();
  std::size_t rows = 0;
  for (std::int32_t t = 0; t < batch.tokens; ++t) {
    for (std::int32_t w = 0; w < kWorkers; ++w) {
      const auto* ids = batch.ids.data() + static_cast<std::ptrdiff_t>(t) * batch.shape.top_k;
      const bool there = std::any_of(ids, ids + batch.shape.top_k, [&](std::int32_t id) {
        return id / (batch.shape.experts / kWorkers) == w;
      });
      rows += there ? 1 : 0;
    }
  }
  return rows;
}

OpenSessionRequest SessionOf(DispatchMode mode) {
  OpenSessionRequest request;
  request.deployment = "local";
  request.mode = mode;
  request.max_tokens = kTokens;
  request.y_dtype = OutputDtype::kBf16;
  return request;
}

struct Times {
  std::vector<double> memcpys;
  std::vector<double> steps;
  std::vector<double> without_copy;  // steps, less what stands for the expert kernel
  StepTimes before;
  StepTimes after;
};

void AddFigures(DispatchMode mode, std::size_t bytes, const Times& times, Report* report) {
  const std::string name =
      absl::StrFormat("data path T=128 H=2048, two workers, shm, %s", DispatchModeName(mode));
  const double memcpy_us = Median(times.memcpys) * 1e6;
  const auto part = [&](std::uint64_t StepTimes::*of) {
    return UsAStep(times.before, times.after, of);
  };
  report->Add({.name = name,
               .value = MedianRatio(times.steps, times.memcpys),
               .unit = "x",
               .at_most = 2.5,
               .floor = absl::StrFormat("%.0f us against memcpy of %.2f MB in %.0f us",
                                        Median(times.steps) * 1e6, static_cast<double>(bytes) / 1e6,
                                        memcpy_us)});
  report->Add(
      {.name = name + ", without the copy in the device",
       .value = MedianRatio(times.without_copy, times.memcpys),
       .unit = "x",
       .floor = absl::StrFormat(
           "%.0f us; at the source plan %.0f, encode %.0f, doorbells %.0f, sum %.0f",
           Median(times.without_copy) * 1e6, part(&StepTimes::plan_ns), part(&StepTimes::encode_ns),
           part(&StepTimes::send_ns), part(&StepTimes::sum_ns))});
}

}  // namespace

void DataPathFigures(const RunOptions& options, Report* report) {
  Logger logger("bench", LogLevel::kError);
  std::array<std::atomic<std::int64_t>, kWorkers> copying{};  // nanoseconds
  InProcessOptions deploy;
  deploy.checkpoint = kModel;
  deploy.workers = kWorkers;
  deploy.logger = &logger;
  deploy.over_ucx = true;
  deploy.make_device = [&](std::size_t worker) { return MakeCopyDevice(&copying[worker]); };
  const auto deployment = OrExit(InProcessDeployment::Start(deploy));
  // Workers run side by side: of their copies the longer one is in the step.
  const auto slowest_copy = [&] {
    std::int64_t longest = 0;
    for (auto& each : copying) longest = std::max(longest, each.exchange(0));
    return static_cast<double>(longest) * 1e-9;
  };
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    ServedSession served;
    served.client = OrExit(deployment->MakeClient());
    served.session =
        OrExit(served.client->OpenWhenReady(SessionOf(mode), std::chrono::seconds(60)));
    MoeBatch batch(kShape, kTokens, 11);
    const StepRequest request = batch.Request(LayerId{0});
    const std::size_t row_bytes = static_cast<std::size_t>(kShape.hidden) * sizeof(Bf16);
    const std::size_t bytes = 2 * RowsOf(batch, mode) * row_bytes;
    CopyFloor floor(bytes);
    Times times;
    times.before = served.Times();
    for (int pass = -1; pass < options.passes; ++pass) {
      Times of_pass;
      for (int step = 0; step < kStepsAPass; ++step) {
        of_pass.memcpys.push_back(SecondsOf([&] { floor.Copy(); }));
        slowest_copy();
        of_pass.steps.push_back(SecondsOf([&] { served.Run(request); }));
        of_pass.without_copy.push_back(of_pass.steps.back() - slowest_copy());
      }
      if (pass < 0) continue;
      times.memcpys.push_back(Median(of_pass.memcpys));
      times.steps.push_back(Median(of_pass.steps));
      times.without_copy.push_back(Median(of_pass.without_copy));
    }
    times.after = served.Times();
    AddFigures(mode, bytes, times, report);
  }
}

}  // namespace switchyard::bench
