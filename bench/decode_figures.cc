#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"

#include "bench/figures.h"
#include "bench/in_process_model.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"
#include "bench/transport_echo.h"

namespace switchyard::bench {
namespace {

constexpr const char* kBigLayer =
    "synthetic:hidden=2048,intermediate=768,experts=64,top_k=8,layers=1";
constexpr int kStepsAPass = 100;
// Workers share the one GPU, so that only one of them has a bound there.
constexpr double kGpuAddsUs = 30;
constexpr std::size_t kBatches = 16;  // different routings, so that experts take turns

struct Way {
  const char* name;
  std::int32_t workers;
  const char* transport;
  double at_most_us;  // 0: for information
};

struct Measured {
  std::vector<double> seconds;  // of single steps
  StepTimes before;
  StepTimes after;
};

// What the p50 of a step is made of. The parts that this process measures are means of the same
// steps; `echo_us` is what the same frames cost with nothing above the transport.
void PrintParts(const Way& way, const Measured& measured, double local_us, double echo_us) {
  const double total = Median(measured.seconds) * 1e6;
  const double plan = UsAStep(measured.before, measured.after, &StepTimes::plan_ns);
  const double encode = UsAStep(measured.before, measured.after, &StepTimes::encode_ns);
  const double doorbell = UsAStep(measured.before, measured.after, &StepTimes::send_ns);
  const double sum = UsAStep(measured.before, measured.after, &StepTimes::sum_ns);
  absl::PrintF(
      "    %-22s total %.1f us = plan %.1f, encode %.1f, doorbells %.1f, compute %.1f (as in "
      "process), sum %.1f,\n    %22s wakes, worker's frame, reply %.1f (a bare echo of one such "
      "frame: %.1f)\n",
      way.name, total, plan, encode, doorbell, local_us, sum, "",
      total - plan - encode - doorbell - local_us - sum, echo_us);
}

class DecodeRun {
 public:
  DecodeRun(const RunOptions& options, std::string model, std::vector<Way> ways)
      : options_(options), model_(std::move(model)), ways_(std::move(ways)) {
    for (const std::int32_t workers : {1, 4}) {
      deployments_.push_back(std::make_unique<ServedModel>(options_.bin_dir, model_, workers,
                                                           options_.device, options_.busy_poll_us));
    }
    for (const Way& way : ways_) {
      sessions_.push_back(deployments_[way.workers == 1 ? 0 : 1]->Open(
          {.transport = way.transport, .phase = Phase::kDecode}));
    }
    in_process_ = std::make_unique<InProcessModel>(model_, 1, 1, options_.device);
    for (std::size_t i = 0; i < kBatches; ++i) batches_.emplace_back(in_process_->shape(), 1, i);
  }

  void Measure() {
    measured_.resize(ways_.size());
    for (int pass = -1; pass < options_.passes; ++pass) {
      if (pass == 0) NoteTimes(&Measured::before);
      Steps(pass < 0, &local_, [&](const StepRequest& request) { in_process_->Run(request); });
      for (std::size_t way = 0; way < ways_.size(); ++way) {
        Steps(pass < 0, &measured_[way].seconds,
              [&](const StepRequest& request) { sessions_[way].Run(request); });
      }
    }
    NoteTimes(&Measured::after);
  }

  void Print(const char* title, Report* report) {
    const double local_us = Median(local_) * 1e6;
    const double echo_us = EchoUs();
    for (std::size_t way = 0; way < ways_.size(); ++way) {
      const double total_us = Median(measured_[way].seconds) * 1e6;
      Figure figure{
          .name = absl::StrFormat("decode T=1, %s, %s: added p50", title, ways_[way].name),
          .value = total_us - local_us,
          .unit = "us",
          .floor = absl::StrFormat("%.1f (p90 %.1f) us against %.1f us in process", total_us,
                                   Quantile(measured_[way].seconds, 0.9) * 1e6, local_us)};
      if (ways_[way].at_most_us > 0) figure.at_most = ways_[way].at_most_us;
      report->Add(figure);
      if (HasTimes(way)) PrintParts(ways_[way], measured_[way], local_us, echo_us);
    }
  }

 private:
  [[nodiscard]] bool HasTimes(std::size_t way) const {
    return std::string(ways_[way].transport) != "gateway";
  }
  void NoteTimes(StepTimes Measured::*which) {
    for (std::size_t way = 0; way < ways_.size(); ++way) {
      if (HasTimes(way)) measured_[way].*which = sessions_[way].Times();
    }
  }
  template <typename Run>
  void Steps(bool warm_up, std::vector<double>* times, Run run) {
    for (std::size_t i = 0; i < kStepsAPass; ++i) {
      const LayerId layer{static_cast<std::int32_t>(i % in_process_->layers())};
      const StepRequest request = batches_[i % kBatches].Request(layer);
      const double took = SecondsOf([&] { run(request); });
      if (!warm_up) times->push_back(took);
    }
  }
  [[nodiscard]] double EchoUs() const {
    const std::size_t row = static_cast<std::size_t>(in_process_->shape().hidden) * sizeof(Bf16);
    TransportEcho echo("shm", row, std::chrono::microseconds(options_.busy_poll_us));
    std::vector<double> times;
    for (int i = 0; i < 1000; ++i) times.push_back(SecondsOf([&] { echo.RoundTrip(row, row); }));
    return Median(std::move(times)) * 1e6;
  }

  RunOptions options_;
  std::string model_;
  std::vector<Way> ways_;
  std::vector<std::unique_ptr<ServedModel>> deployments_;
  std::vector<ServedSession> sessions_;
  std::unique_ptr<InProcessModel> in_process_;
  std::vector<MoeBatch> batches_;
  std::vector<double> local_;
  std::vector<Measured> measured_;
};

}  // namespace

void DecodeFigures(const RunOptions& options, Report* report) {
  const bool gpu = options.device.starts_with("cuda");
  {
    DecodeRun run(options, options.model,
                  {{"one worker, shm", 1, "shm", gpu ? kGpuAddsUs : 150},
                   {"four workers, shm", 4, "shm", gpu ? 0.0 : 400},
                   {"four workers, tcp", 4, "tcp", 0},
                   {"one worker, gRPC gateway", 1, "gateway", 0},
                   {"four workers, gRPC gateway", 4, "gateway", 0}});
    run.Measure();
    run.Print("sqlite-moe-7m", report);
  }
  DecodeRun run(options, kBigLayer,
                {{"one worker, shm", 1, "shm", 0}, {"four workers, shm", 4, "shm", 0}});
  run.Measure();
  run.Print("30B layer", report);
}

}  // namespace switchyard::bench
