#include <algorithm>
#include <atomic>
#include <cstdint>
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
#include "worker/expert/batch_memory.h"

namespace switchyard::bench {
namespace {

constexpr const char* kBigLayer =
    "synthetic:hidden=2048,intermediate=768,experts=64,top_k=8,layers=1";
constexpr int kPrefillSessions = 2;
constexpr int kPrefillStepsAPass = 6;  // of both sessions together, at least
constexpr std::size_t kBatches = 16;   // different routings of decode, so that experts take turns

struct Case {
  const char* name;
  std::string model;
  int steps_a_pass;         // of decode; p99 needs more than 100 steps in all
  bool one_client = false;  // has all sessions, as an engine does; else each has its own
};

// A worker takes requests of any sessions into one batch, up to this many rows.
std::int32_t BatchRows() { return static_cast<std::int32_t>(BatchOptions{}.rows_max); }

// Prefill steps of one session, one after the other, until the end of its scope.
class PrefillLoad {
 public:
  PrefillLoad(const ServedSession& served, MoeBatch* batch, std::int32_t layers)
      : thread_([this, &served, batch, layers] {
          for (std::int32_t i = 0; !stop_.load(); ++i) {
            served.Run(batch->Request(LayerId{i % layers}));
            ++steps_;
          }
        }) {}
  ~PrefillLoad() {
    stop_.store(true);
    thread_.join();
  }
  PrefillLoad(const PrefillLoad&) = delete;
  PrefillLoad& operator=(const PrefillLoad&) = delete;

  [[nodiscard]] int steps() const { return steps_.load(); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> steps_{0};
  std::thread thread_;
};

class ContentionRun {
 public:
  ContentionRun(const RunOptions& options, Case of)
      : options_(options), case_(std::move(of)), served_(options_.bin_dir, case_.model, 1) {
    const ModelConfig config = OrExit(ReadModelConfig(OrExit(ParseModelSpec(case_.model))));
    layers_ = static_cast<std::int32_t>(MoeLayersOf(config).size());
    const MoeShape shape = ShapeOf(config);
    decode_ = served_.Open({.phase = Phase::kDecode, .step_deadline = Duration::zero()});
    for (std::size_t i = 0; i < kBatches; ++i) tokens_.emplace_back(shape, 1, i);
    for (int i = 0; i < kPrefillSessions; ++i) {
      const SessionRequest wanted{.phase = Phase::kPrefill, .max_tokens = BatchRows()};
      prefill_.push_back(case_.one_client ? ServedModel::OpenOn(*decode_.client, wanted)
                                          : served_.Open(wanted));
      prompts_.emplace_back(shape, BatchRows() / kPrefillSessions, 100 + i);
    }
    full_batch_ = std::make_unique<MoeBatch>(shape, BatchRows(), 200);
  }

  void Measure() {
    for (int pass = -1; pass < options_.passes; ++pass) {
      const bool warm_up = pass < 0;
      const double batch = SecondsOf([&] { prefill_[0].Run(full_batch_->Request(LayerId{0})); });
      if (!warm_up) batch_seconds_.push_back(batch);
      DecodeSteps(warm_up, &alone_);
      int prefill_steps = 0;
      double beside_seconds = 0;
      {
        std::vector<std::unique_ptr<PrefillLoad>> loads;
        for (std::size_t i = 0; i < prefill_.size(); ++i) {
          loads.push_back(std::make_unique<PrefillLoad>(prefill_[i], &prompts_[i], layers_));
        }
        // Decode starts into a queue of prefill, not before it.
        for (const auto& load : loads) {
          while (load->steps() == 0) std::this_thread::yield();
        }
        const int before = StepsOf(loads);
        beside_seconds = SecondsOf([&] {
          DecodeSteps(warm_up, &beside_);
          // Long enough to count prefill as well.
          while (StepsOf(loads) - before < kPrefillStepsAPass) DecodeSteps(warm_up, &beside_);
        });
        prefill_steps = StepsOf(loads) - before;
      }
      if (!warm_up) {
        const double rows = static_cast<double>(prefill_steps) * prompts_[0].tokens;
        rows_a_second_.push_back(rows / beside_seconds);
      }
    }
  }

  void Print(Report* report) const {
    const std::string name =
        absl::StrFormat("decode T=1, %s, one worker, beside two sessions of prefill T=%d",
                        case_.name, prompts_[0].tokens);
    const double batch_us = Median(batch_seconds_) * 1e6;
    const double alone_p99 = Quantile(alone_.seconds, 0.99) * 1e6;
    report->Add({.name = name + ": p99",
                 .value = Quantile(beside_.seconds, 0.99) * 1e6,
                 .unit = "us",
                 .at_most = 3 * alone_p99 + batch_us,
                 .floor = absl::StrFormat("alone p99 %.1f us; a prefill batch of %d rows %.0f us",
                                          alone_p99, BatchRows(), batch_us)});
    report->Add(
        {.name = name + ": p50",
         .value = Median(beside_.seconds) * 1e6,
         .unit = "us",
         .floor = absl::StrFormat("alone p50 %.1f us; most %.0f us beside, %.0f us alone",
                                  Median(alone_.seconds) * 1e6, Quantile(beside_.seconds, 1) * 1e6,
                                  Quantile(alone_.seconds, 1) * 1e6)});
    report->Add({.name = name + ": deadlines missed",
                 .value = static_cast<double>(beside_.missed),
                 .unit = "",
                 .at_most = 0,
                 .floor = absl::StrFormat("of %d steps, %d of %d alone", beside_.seconds.size(),
                                          alone_.missed, alone_.seconds.size())});
    report->Add({.name = name + ": prefill rows",
                 .value = Median(rows_a_second_) / 1e3,
                 .unit = "k/s",
                 .floor = absl::StrFormat("%.1f k/s in one batch without decode",
                                          BatchRows() / batch_us * 1e3)});
  }

 private:
  struct Steps {
    std::vector<double> seconds;
    int missed = 0;  // their deadline
  };

  static int StepsOf(const std::vector<std::unique_ptr<PrefillLoad>>& loads) {
    int steps = 0;
    for (const auto& load : loads) steps += load->steps();
    return steps;
  }

  // A step that misses its deadline counts with the time that it took to fail.
  void DecodeSteps(bool warm_up, Steps* steps) {
    for (int i = 0; i < case_.steps_a_pass; ++i) {
      MoeBatch& token = tokens_[static_cast<std::size_t>(i) % kBatches];
      const StepRequest request = token.Request(LayerId{i % layers_});
      absl::Status status;
      const double took = SecondsOf(
          [&] { status = decode_.session->Wait(OrExit(decode_.session->Submit(request))); });
      const bool missed = !status.ok() && ReasonOf(status) == Reason::kStepDeadline;
      if (!missed) OrExit(status);
      if (warm_up) continue;
      steps->seconds.push_back(took);
      steps->missed += missed ? 1 : 0;
    }
  }

  RunOptions options_;
  Case case_;
  ServedModel served_;
  std::int32_t layers_ = 0;
  ServedSession decode_;
  std::vector<ServedSession> prefill_;
  std::vector<MoeBatch> tokens_;
  std::vector<MoeBatch> prompts_;
  std::unique_ptr<MoeBatch> full_batch_;

  Steps alone_;
  Steps beside_;
  std::vector<double> batch_seconds_;
  std::vector<double> rows_a_second_;
};

}  // namespace

void ContentionFigures(const RunOptions& options, Report* report) {
  for (const Case& of : {Case{.name = "sqlite-moe-7m", .model = options.model, .steps_a_pass = 100},
                         Case{.name = "sqlite-moe-7m, sessions of one client",
                         .model = options.model,
                         .steps_a_pass = 100,
                         .one_client = true},
                         Case{.name = "30B layer", .model = kBigLayer, .steps_a_pass = 12}}) {
    ContentionRun run(options, of);
    run.Measure();
    run.Print(report);
  }
}

}  // namespace switchyard::bench
