#include "worker/expert/staging_thread.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace switchyard {
namespace {

// Two epochs of a deployment may be resident, so more than this means that nobody drops.
constexpr std::size_t kOrdersMax = 64;

bool Is(const Plan& plan, absl::string_view deployment, Epoch epoch) {
  return plan.epoch == epoch && deployment == plan.deployment;
}

}  // namespace

StagingThread::StagingThread(StagerOptions options, Progress on_progress)
    : stager_(std::move(options)),
      on_progress_(std::move(on_progress)),
      thread_([this] { Run(); }) {}

StagingThread::~StagingThread() { Stop(); }

void StagingThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (running_) running_->stop.request_stop();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StagingThread::Stage(const Prepare& prepare, std::function<void(absl::Status)> done) {
  auto order = std::make_shared<Order>(
      Order{.prepare = prepare, .done = std::move(done), .stop = std::stop_source()});
  {
    const std::lock_guard lock(mutex_);
    if (work_.size() < kOrdersMax) {
      work_.emplace_back(std::exchange(order, nullptr));
    }
  }
  changed_.notify_all();
  if (order) {
    order->done(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                          "too many epochs wait to be staged; abort some"));
  }
}

StagedEpoch StagingThread::Take(absl::string_view deployment, Epoch epoch) {
  const std::lock_guard lock(mutex_);
  for (Held& held : held_) {
    if (!Is(held.runtime->plan, deployment, epoch) || held.taken) continue;
    held.taken = true;
    return std::move(held.staged);
  }
  return {};
}

void StagingThread::Drop(absl::string_view deployment, Epoch epoch) {
  std::vector<Held> dropped;  // Freed by the thread, after the lock.
  {
    const std::lock_guard lock(mutex_);
    if (running_ && Is(running_->prepare.plan, deployment, epoch)) {
      running_->stop.request_stop();
      running_->done = nullptr;
    }
    std::erase_if(work_, [&](const Work& work) {
      const auto* order = std::get_if<std::shared_ptr<Order>>(&work);
      return order != nullptr && Is((*order)->prepare.plan, deployment, epoch);
    });
    for (Held& held : held_) {
      if (!Is(held.runtime->plan, deployment, epoch)) continue;
      if (held.staged.runtime == nullptr) held.staged.runtime = held.runtime;
      work_.emplace_back(std::move(held.staged));
      held.runtime = nullptr;
    }
    std::erase_if(held_, [](const Held& held) { return held.runtime == nullptr; });
  }
  changed_.notify_all();
}

void StagingThread::Free(StagedEpoch epoch) {
  {
    const std::lock_guard lock(mutex_);
    work_.emplace_back(std::move(epoch));
  }
  changed_.notify_all();
}

std::vector<ResidentEpoch> StagingThread::Resident() const {
  const std::lock_guard lock(mutex_);
  std::vector<ResidentEpoch> resident;
  for (const Held& held : held_) {
    resident.push_back({.deployment = held.runtime->deployment(),
                        .epoch = held.runtime->epoch(),
                        .hash = held.runtime->hash,
                        .committed = held.taken});
  }
  return resident;
}

void StagingThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
    if (stopping_) return;
    Work work = std::move(work_.front());
    work_.pop_front();
    auto* order = std::get_if<std::shared_ptr<Order>>(&work);
    if (order != nullptr) running_ = *order;
    lock.unlock();
    if (order != nullptr) {
      StageOne(*order);
    } else {
      work = StagedEpoch();  // Frees the weights here.
    }
    lock.lock();
    running_ = nullptr;
  }
}

void StagingThread::StageOne(const std::shared_ptr<Order>& order) {
  const auto resident = Runtimes();
  const Plan& plan = order->prepare.plan;
  absl::StatusOr<StagedEpoch> staged =
      stager_.Stage({.prepare = &order->prepare,
                     .resident = resident,
                     .stop = order->stop.get_token(),
                     .on_progress = [this, &plan](const StagingProgress& progress) {
                       if (on_progress_) on_progress_(plan.deployment, plan.epoch, progress);
                     }});
  std::function<void(absl::Status)> done;
  {
    const std::lock_guard lock(mutex_);
    done = std::exchange(order->done, nullptr);  // Empty: dropped meanwhile.
    if (done && staged.ok()) {
      held_.push_back({.runtime = staged->runtime, .staged = *std::move(staged)});
    }
    running_ = nullptr;
  }
  if (done) done(staged.status());
}

std::vector<std::shared_ptr<const EpochRuntime>> StagingThread::Runtimes() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const EpochRuntime>> runtimes;
  for (const Held& held : held_) runtimes.push_back(held.runtime);
  return runtimes;
}

}  // namespace switchyard
