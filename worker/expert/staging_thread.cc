#include "worker/expert/staging_thread.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace switchyard {
namespace {

// Two epochs of a deployment may be resident, so more jobs than this mean that the coordinator
// stages without dropping.
constexpr std::size_t kJobsMax = 64;

bool Is(const Plan& plan, absl::string_view deployment, Epoch epoch) {
  return plan.epoch == epoch && deployment == plan.deployment;
}

}  // namespace

StagingThread::StagingThread(StagerOptions options)
    : stager_(std::move(options)), thread_([this] { Run(); }) {}

StagingThread::~StagingThread() { Stop(); }

void StagingThread::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    // Loading takes minutes, and the thread is joined below.
    if (running_) running_->stop.request_stop();
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void StagingThread::Stage(const Prepare& prepare, std::function<void(absl::Status)> done) {
  auto job = std::make_shared<Job>(
      Job{.prepare = prepare, .done = std::move(done), .stop = std::stop_source()});
  {
    const MutexLock lock(mutex_);
    if (work_.size() < kJobsMax) {
      work_.emplace_back(std::exchange(job, nullptr));
    }
  }
  changed_.NotifyAll();
  if (job) {
    // On the caller's thread, but without the lock.
    job->done(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                        "too many epochs wait to be staged; abort some"));
  }
}

StagedEpoch StagingThread::Take(absl::string_view deployment, Epoch epoch) {
  const MutexLock lock(mutex_);
  for (Held& held : held_) {
    if (!Is(held.runtime->plan, deployment, epoch) || held.taken) continue;
    // The runtime stays in held_, so that the next epoch shares its experts.
    held.taken = true;
    return std::move(held.staged);
  }
  return {};
}

void StagingThread::Drop(absl::string_view deployment, Epoch epoch) {
  std::vector<Held> dropped;  // Freed by the thread, after the lock.
  {
    const MutexLock lock(mutex_);
    // Its `done` is cleared under the lock, so StageOne frees the result and reports nothing.
    if (running_ && Is(running_->prepare.plan, deployment, epoch)) {
      running_->stop.request_stop();
      running_->done = nullptr;
    }
    // A job that has not begun: its `done` goes with it.
    std::erase_if(work_, [&](const Work& work) {
      const auto* job = std::get_if<std::shared_ptr<Job>>(&work);
      return job != nullptr && Is((*job)->prepare.plan, deployment, epoch);
    });
    for (Held& held : held_) {
      if (!Is(held.runtime->plan, deployment, epoch)) continue;
      // A taken epoch is held by the engine too; the reference kept here is queued, so that the
      // thread frees the weights whoever lets go last.
      if (held.staged.runtime == nullptr) held.staged.runtime = held.runtime;
      work_.emplace_back(std::move(held.staged));
      held.runtime = nullptr;
    }
    std::erase_if(held_, [](const Held& held) { return held.runtime == nullptr; });
  }
  changed_.NotifyAll();
}

void StagingThread::Free(StagedEpoch epoch) {
  {
    const MutexLock lock(mutex_);
    work_.emplace_back(std::move(epoch));
  }
  changed_.NotifyAll();
}

std::vector<ResidentEpoch> StagingThread::Resident() const {
  const MutexLock lock(mutex_);
  std::vector<ResidentEpoch> resident;
  for (const Held& held : held_) {
    resident.push_back({.deployment = held.runtime->deployment(),
                        .epoch = held.runtime->epoch(),
                        .hash = held.runtime->hash,
                        .committed = held.taken});
  }
  return resident;
}

std::vector<StagingReport> StagingThread::Reports() const {
  const MutexLock lock(mutex_);
  std::vector<StagingReport> reports;
  for (const Held& held : held_) {
    if (!held.taken && reports.size() + 1 < kStagingReportsMax) reports.push_back(held.report);
  }
  // A job without `done` was dropped: nobody waits for it.
  if (running_ && running_->done && running_->report) reports.push_back(*running_->report);
  return reports;
}

void StagingThread::SetReport(Job& job, const StagingProgress& progress) {
  const Plan& plan = job.prepare.plan;
  const MutexLock lock(mutex_);
  job.report = {.deployment = plan.deployment,
                .epoch = plan.epoch,
                .experts_done = progress.experts_done - progress.experts_shared,
                .experts = progress.experts - progress.experts_shared,
                .bytes_done = progress.bytes_done,
                .bytes = progress.bytes};
}

void StagingThread::Run() {
  UniqueLock lock(mutex_);
  while (true) {
    while (!stopping_ && work_.empty()) changed_.Wait(mutex_);
    // Before the queue: at the end of a process, freeing weights one by one only takes time.
    if (stopping_) return;
    Work work = std::move(work_.front());
    work_.pop_front();
    auto* job = std::get_if<std::shared_ptr<Job>>(&work);
    // In the same critical section as the pop: Drop finds a job either in work_ or here.
    if (job != nullptr) running_ = *job;
    lock.Unlock();
    if (job != nullptr) {
      StageOne(*job);
    } else {
      work = StagedEpoch();  // Frees the weights here.
      CountWeights();
    }
    lock.Lock();
    running_ = nullptr;
  }
}

void StagingThread::StageOne(const std::shared_ptr<Job>& job) {
  // A copy of the references: Drop may change held_ while weights load for minutes.
  const auto resident = Runtimes();
  std::int64_t loaded = 0;
  const auto report = [this, &job, &loaded](const StagingProgress& progress) {
    loaded = progress.bytes_done;  // by one thread at a time
    SetReport(*job, progress);
  };
  const TimePoint began = SteadyClock().Now();
  absl::StatusOr<StagedEpoch> staged = stager_.Stage({.prepare = &job->prepare,
                                                      .resident = resident,
                                                      .stop = job->stop.get_token(),
                                                      .on_begin = report,
                                                      .on_progress = report});
  (staged.ok() ? times_.loaded : times_.failed).Observe(SteadyClock().Now() - began);
  times_.bytes.fetch_add(static_cast<std::uint64_t>(loaded), std::memory_order_relaxed);
  std::function<void(absl::Status)> done;
  {
    const MutexLock lock(mutex_);
    done = std::exchange(job->done, nullptr);  // Empty: dropped meanwhile.
    // Known from before `done` is called: its receiver may commit, and thus Take, at once.
    if (done && staged.ok()) {
      held_.push_back({.runtime = staged->runtime,
                       .staged = *std::move(staged),
                       .report = job->report.value_or(StagingReport{})});
    }
    running_ = nullptr;
  }
  CountWeights();
  // Without the lock, because `done` may call back into this object.
  if (done) done(staged.status());
}

// On this thread and not when the count is read: the references that it takes may be the last ones.
void StagingThread::CountWeights() { weight_bytes_.store(ResidentBytes(Runtimes())); }

std::vector<std::shared_ptr<const EpochRuntime>> StagingThread::Runtimes() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const EpochRuntime>> runtimes;
  for (const Held& held : held_) runtimes.push_back(held.runtime);
  return runtimes;
}

}  // namespace switchyard
