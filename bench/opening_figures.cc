#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"

#include "bench/figures.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"
#include "core/base/error.h"
#include "model/checkpoint.h"
#include "model/model_spec.h"

namespace switchyard::bench {
namespace {

// Rows as wide as those of DeepSeek-V3, and experts so small that a step takes no time for them.
constexpr const char* kWideLayer =
    "synthetic:hidden=7168,intermediate=64,experts=16,top_k=8,layers=1";
constexpr std::int32_t kPrefillTokens = 4096;
constexpr double kSecondsAPass = 1.5;
constexpr double kMostAboveMedian = 10e-3;  // seconds

// Opens and closes prefill sessions until the end of its scope.
class OpeningLoad {
 public:
  // `shared`: sessions of that client; else each has a client of its own.
  OpeningLoad(const ServedModel& served, Client* shared)
      : thread_([this, &served, shared] {
          while (!stop_.load()) {
            seconds_.push_back(SecondsOf([&] { OpenAndClose(served, shared); }));
          }
        }) {}
  ~OpeningLoad() { Stop(); }
  OpeningLoad(const OpeningLoad&) = delete;
  OpeningLoad& operator=(const OpeningLoad&) = delete;

  // How long each took.
  const std::vector<double>& Stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    return seconds_;
  }

 private:
  static void OpenAndClose(const ServedModel& served, Client* shared) {
    if (shared == nullptr) {
      const ServedSession opened =
          served.Open({.phase = Phase::kPrefill, .max_tokens = kPrefillTokens});
      return;
    }
    OpenSessionRequest request;
    request.deployment = "local";
    request.phase = Phase::kPrefill;
    request.max_tokens = kPrefillTokens;
    OrExit(shared->Open(request));
  }

  std::atomic<bool> stop_{false};
  std::vector<double> seconds_;
  std::thread thread_;
};

class OpeningRun {
 public:
  explicit OpeningRun(const RunOptions& options)
      : options_(options), served_(options.bin_dir, kWideLayer, 1) {
    const MoeShape shape = ShapeOf(OrExit(ReadModelConfig(OrExit(ParseModelSpec(kWideLayer)))));
    token_ = std::make_unique<MoeBatch>(shape, 1, 1);
    decode_ = served_.Open({.phase = Phase::kDecode, .step_deadline = Duration::zero()});
  }

  void Measure() {
    for (int pass = -1; pass < options_.passes; ++pass) {
      DecodeSteps(pass < 0 ? nullptr : &alone_);
      OpeningLoad others(served_, nullptr);
      DecodeSteps(pass < 0 ? nullptr : &beside_others_);
      Append(others.Stop(), &opened_others_);
      OpeningLoad own(served_, decode_.client.get());
      DecodeSteps(pass < 0 ? nullptr : &beside_own_);
      Append(own.Stop(), &opened_own_);
    }
  }

  void Print(Report* report) const {
    Add(report, "of other clients", beside_others_, opened_others_);
    Add(report, "of its own client", beside_own_, opened_own_);
  }

 private:
  static void Append(const std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  void DecodeSteps(std::vector<double>* seconds) {
    for (double spent = 0; spent < kSecondsAPass;) {
      const double took = SecondsOf([&] { decode_.Run(token_->Request(LayerId{0})); });
      spent += took;
      if (seconds != nullptr) seconds->push_back(took);
    }
  }

  void Add(Report* report, const char* whose, const std::vector<double>& beside,
           const std::vector<double>& opened) const {
    const double median = Median(beside);
    report->Add(
        {.name = absl::StrFormat("decode T=1, hidden 7168, one worker, while prefill sessions %s "
                                 "open and close: slowest step above the median",
                                 whose),
         .value = (Quantile(beside, 1) - median) * 1e6,
         .unit = "us",
         .at_most = kMostAboveMedian * 1e6,
         .floor = absl::StrFormat(
             "p50 %.0f us, p99 %.0f us; alone %.0f, %.0f and %.0f us above the "
             "median; %d sessions, each %.0f ms",
             median * 1e6, Quantile(beside, 0.99) * 1e6, Median(alone_) * 1e6,
             Quantile(alone_, 0.99) * 1e6, (Quantile(alone_, 1) - Median(alone_)) * 1e6,
             opened.size(), Median(opened) * 1e3)});
  }

  RunOptions options_;
  ServedModel served_;
  ServedSession decode_;
  std::unique_ptr<MoeBatch> token_;
  std::vector<double> alone_;
  std::vector<double> beside_others_;
  std::vector<double> beside_own_;
  std::vector<double> opened_others_;
  std::vector<double> opened_own_;
};

}  // namespace

void OpeningFigures(const RunOptions& options, Report* report) {
  OpeningRun run(options);
  run.Measure();
  run.Print(report);
}

}  // namespace switchyard::bench
