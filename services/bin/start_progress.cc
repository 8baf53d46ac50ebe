#include "services/bin/start_progress.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/amount_text.h"
#include "core/base/mutex.h"

namespace switchyard {
namespace {

constexpr Duration kEvery = std::chrono::milliseconds(300);

std::optional<ProgressFacts> ReadingOf(const DeploymentView& deployment) {
  if (!deployment.reading || deployment.reading->bytes == 0) return std::nullopt;
  const ReadingView& reading = *deployment.reading;
  return ProgressFacts{.what = absl::StrCat("reading ", reading.checkpoint),
                       .bytes_done = reading.bytes_done,
                       .bytes = reading.bytes,
                       .bytes_per_second = reading.pace.bytes_per_second,
                       .left = reading.pace.left};
}

}  // namespace

std::optional<ProgressFacts> ProgressOf(const CoordinatorView& view) {
  ProgressFacts facts;
  int loading = 0;
  for (const DeploymentView& deployment : view.deployments) {
    // One checkpoint is read at a time.
    if (auto reading = ReadingOf(deployment)) return reading;
    for (const StagingView& one : deployment.staging) {
      facts.bytes_done += one.progress.bytes_done;
      facts.bytes += one.progress.bytes;
      if (one.step != StagingStep::kLoading) continue;
      ++loading;
      facts.bytes_per_second += one.pace.bytes_per_second;
      if (one.pace.left) facts.left = std::max(facts.left.value_or(Duration{}), *one.pace.left);
    }
  }
  if (loading == 0 || facts.bytes == 0) return std::nullopt;
  facts.what = absl::StrCat(CountText(loading, "worker"), " loading");
  return facts;
}

std::optional<ProgressFacts> WorkerProgress::Of(const Heartbeat& heartbeat, TimePoint now) {
  // The last one is the one that is being loaded, if one is.
  if (heartbeat.staging.empty()) return std::nullopt;
  const StagingReport& report = heartbeat.staging.back();
  if (report.bytes_done >= report.bytes) return std::nullopt;
  rate_.Add(report.bytes_done, now);
  return ProgressFacts{
      .what = absl::StrCat("loading epoch ", report.epoch.value, " of ", report.deployment),
      .bytes_done = report.bytes_done,
      .bytes = report.bytes,
      .bytes_per_second = rate_.PerSecond(now),
      .left = rate_.Left(report.bytes, now)};
}

class StartProgress::Painter {
 public:
  explicit Painter(Look look) : look_(std::move(look)), thread_([this] { Run(); }) {}
  ~Painter() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    stop_.NotifyAll();
    thread_.join();
  }
  Painter(const Painter&) = delete;
  Painter& operator=(const Painter&) = delete;

 private:
  void Run() {
    ProgressLine line(STDERR_FILENO);
    while (!WaitForStop()) {
      if (const auto facts = look_()) {
        line.Draw(*facts);
      } else {
        line.Clear();
      }
    }
    line.Clear();
  }
  bool WaitForStop() {
    const TimePoint next = std::chrono::steady_clock::now() + kEvery;
    const MutexLock lock(mutex_);
    while (!stopping_ && stop_.WaitUntil(mutex_, next)) {
    }
    return stopping_;
  }

  const Look look_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when all above exists
};

StartProgress::StartProgress(ProgramLog* log, absl::string_view term, Look look) {
  if (log->logger()->format() != LogFormat::kText) return;
  if (!ProgressLine::IsPossible(STDERR_FILENO, term)) return;
  log->logger()->BeginLinesWith(kEraseLine);
  painter_ = std::make_unique<Painter>(std::move(look));
}

StartProgress::~StartProgress() = default;

}  // namespace switchyard
