#include "worker/expert/expert_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "worker/expert/command_queue.h"
#include "worker/expert/device_fault.h"
#include "worker/expert/load_meter.h"
#include "worker/expert/staging_thread.h"
#include "worker/transport/ring_geometry.h"

namespace switchyard {
namespace {

ExpertEngineOptions EngineOptions(
    const ExpertServiceOptions& options,
    std::function<void(AttachmentId, const absl::Status&)> on_closed) {
  ExpertEngineOptions engine = options.engine;
  // One source for what stager and engine must agree on: a batch's scratch is sized by the stager.
  engine.identity = {.worker_id = options.stager.worker_id,
                     .incarnation = options.stager.incarnation};
  engine.batch = options.stager.batch;
  engine.on_closed = std::move(on_closed);
  return engine;
}

}  // namespace

class ExpertService::Impl {
 public:
  Impl(ExpertServiceOptions options, Transport* transport, Clock* clock, ExpertStreams streams,
       std::unique_ptr<DirectExperts> direct, std::shared_ptr<DeviceFaultReport> fault);

  void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done);

  void Activate(const std::string& deployment, Epoch epoch);
  void Retire(const std::string& deployment, Epoch epoch, std::function<void()> unbound);
  void ShortenRetire(const std::string& deployment, Epoch epoch, Duration within);
  void Drop(const std::string& deployment, Epoch epoch);
  // On the data thread.
  absl::StatusOr<ExpertEngine::Admitted> Admit(const AttachRequest& request);
  absl::StatusOr<AttachGrant> Attach(const AttachRequest& request, AttachAhead ahead,
                                     std::function<void(const absl::Status&)> on_closed);
  // On any thread: makes what an attachment for `request` needs, and meets its source.
  [[nodiscard]] AttachAhead MakeAhead(const AttachRequest& request,
                                      ExpertEngine::Admitted admitted) const;
  void Close(AttachmentId attachment);
  std::vector<AttachmentCounters> CountersOf(SessionId session,
                                             const std::optional<std::string>& caller) const;
  ExpertServiceView View() const;
  void Stop(Duration drain);

  template <typename Result>
  Result Call(Duration timeout, std::function<Result()> work) {
    return commands_.Call<Result>(timeout, std::move(work));
  }

  ExpertEngine& engine() { return engine_; }  // on the data thread
  [[nodiscard]] const StagingThread& staging() const { return staging_; }
  DirectExperts& direct() { return *direct_; }
  [[nodiscard]] const ExpertTimes& times() const { return *options_.engine.times; }
  [[nodiscard]] Heartbeat MakeHeartbeat() const;
  [[nodiscard]] bool IsInUse() const { return attached_.load() || direct_->IsInUse(); }
  [[nodiscard]] std::vector<LoadReport> TakeLoad(TimePoint now) { return load_.Take(now); }

 private:
  void MakeDeviceRings(const AttachRequest& request, LinkOptions options, AttachAhead* ahead) const;
  // An epoch that the engine or a direct session still has bound.
  struct Retiring {
    std::string deployment;
    Epoch epoch;
    // As in the engine, for the direct sessions.
    TimePoint grace_ends{};
    TimePoint ends = TimePoint::max();
    bool engine_unbound = false;
    std::function<void()> unbound;
  };

  void RunDataThread();
  [[nodiscard]] absl::Status CheckNotDraining() const;
  void ReportDrained();
  void ReportUnbound(TimePoint now);
  [[nodiscard]] Duration SleepFor(TimePoint now) const;
  void OnClosed(AttachmentId attachment, const absl::Status& why);

  const ExpertServiceOptions options_;
  Transport* const transport_;
  Clock* const clock_;
  const std::shared_ptr<DeviceFaultReport> fault_;  // the parts below hold it too
  StagingThread staging_;
  const std::unique_ptr<DirectExperts> direct_;
  LoadMeter load_;
  CommandQueue commands_;
  // Relaxed: the coordinator compares readings, and no data is published through them.
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<bool> attached_{false};
  std::atomic<TimePoint> batch_since_{TimePoint::max()};

  // Used by the data thread only.
  ExpertEngine engine_;
  std::map<AttachmentId, std::function<void(const absl::Status&)>> on_closed_;
  std::vector<std::shared_ptr<Retiring>> retiring_;

  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  CondVar changed_;
  bool drained_ SY_GUARDED_BY(mutex_) = false;  // draining, and no attachment is open
  Mutex stop_mutex_;                            // one Stop at a time

  std::thread thread_;  // last: starts when all above exists
};

ExpertService::Impl::Impl(ExpertServiceOptions options, Transport* transport, Clock* clock,
                          ExpertStreams streams, std::unique_ptr<DirectExperts> direct,
                          std::shared_ptr<DeviceFaultReport> fault)
    : options_(std::move(options)),
      transport_(transport),
      clock_(clock),
      fault_(std::move(fault)),
      staging_(options_.stager),
      direct_(std::move(direct)),
      commands_([transport] { transport->Wake(); }, options_.calls_max),
      engine_(
          EngineOptions(options_, [this](AttachmentId attachment,
                                         const absl::Status& why) { OnClosed(attachment, why); }),
          transport, std::move(streams)),
      thread_([this] { RunDataThread(); }) {}

void ExpertService::Impl::StagePlan(const Prepare& prepare,
                                    std::function<void(absl::Status)> done) {
  staging_.Stage(prepare, [fault = fault_, done = std::move(done)](absl::Status staged) {
    fault->Look(staged);
    done(std::move(staged));
  });
}

void ExpertService::Impl::Activate(const std::string& deployment, Epoch epoch) {
  // Taken here and not on the data thread, which must not wait for the staging thread's lock.
  // Shared, because a std::function must be copyable.
  auto staged = std::make_shared<StagedEpoch>(staging_.Take(deployment, epoch));
  if (staged->runtime == nullptr) return;  // Dropped meanwhile.
  // At once: a direct session may hear of the epoch, and bind it, before the data thread has come
  // to the command. Attachments bind by commands, which follow it.
  load_.Activate(*staged->runtime);  // before a step can be counted
  direct_->Activate(staged->runtime);
  commands_.Post([this, staged] { engine_.Activate(std::move(*staged)); });
}

void ExpertService::Impl::Retire(const std::string& deployment, Epoch epoch,
                                 std::function<void()> unbound) {
  auto retiring = std::make_shared<Retiring>(
      Retiring{.deployment = deployment, .epoch = epoch, .unbound = std::move(unbound)});
  commands_.Post([this, retiring] {
    const TimePoint now = clock_->Now();
    // The grace is measured from here, because time spent in the queue must not shorten it.
    retiring->grace_ends = now + options_.engine.retire_grace;
    retiring_.push_back(retiring);
    direct_->Retire(retiring->deployment, retiring->epoch);
    engine_.Retire(retiring->deployment, retiring->epoch, now,
                   [retiring] { retiring->engine_unbound = true; });
  });
}

void ExpertService::Impl::ShortenRetire(const std::string& deployment, Epoch epoch,
                                        Duration within) {
  commands_.Post([this, deployment, epoch, within] {
    const TimePoint now = clock_->Now();
    for (const auto& retiring : retiring_) {
      if (retiring->epoch != epoch || retiring->deployment != deployment) continue;
      retiring->ends = std::min(retiring->ends, now + std::min(within, kStepDeadlineMax));
    }
    engine_.ShortenRetire(deployment, epoch, now, within);
  });
}

void ExpertService::Impl::Drop(const std::string& deployment, Epoch epoch) {
  // First of all, so that a staging that ends now is not reported after the drop.
  staging_.Drop(deployment, epoch);
  load_.Drop(deployment, epoch);
  commands_.Post([this, deployment, epoch] {
    std::erase_if(retiring_, [&](const auto& retiring) {
      return retiring->epoch == epoch && retiring->deployment == deployment;
    });
    direct_->Drop(deployment, epoch);
    // Freeing gigabytes takes long enough to miss a decode step, hence another thread.
    staging_.Free(engine_.Drop(deployment, epoch));
  });
}

absl::Status ExpertService::Impl::CheckNotDraining() const {
  if (!draining_.load()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kSessionClosed,
      absl::StrFormat("worker %s is draining; fetch the current plan", options_.stager.worker_id),
      {{"worker", options_.stager.worker_id}});
}

absl::StatusOr<ExpertEngine::Admitted> ExpertService::Impl::Admit(const AttachRequest& request) {
  SY_RETURN_IF_ERROR(CheckNotDraining());
  return engine_.Admit(request);
}

AttachAhead ExpertService::Impl::MakeAhead(const AttachRequest& request,
                                           ExpertEngine::Admitted admitted) const {
  LinkOptions options = LinkOptionsOf(request);
  options.until_freed = admitted.counted;
  AttachAhead ahead{.memory = transport_->MakeMemory(options),
                    .counted = std::move(admitted.counted),
                    .credits = ExpertAttachment::MakeCredits(request, admitted.shape)};
  // Attach tells what fails here, in the terms of the link that it would have become.
  if (ahead.memory != nullptr) ahead.memory->Meet(request.reply_ring);
  MakeDeviceRings(request, options, &ahead);
  return ahead;
}

// A source without memory of a device has no use for ours.
void ExpertService::Impl::MakeDeviceRings(const AttachRequest& request, LinkOptions options,
                                          AttachAhead* ahead) const {
  if (request.reply_ring.device_memory.empty() || !RoundRing(&options).ok()) return;
  DeviceBackend* const device = options_.stager.device;
  auto rings = DeviceRings::Make(device, RingBytesOf(options));
  const absl::Status met = rings.ok() ? (*rings)->Meet(device, request.reply_ring) : rings.status();
  if (met.ok()) {
    ahead->device_rings = *std::move(rings);
  } else {
    ahead->why_no_device_rings = std::string(met.message());
  }
}

absl::StatusOr<AttachGrant> ExpertService::Impl::Attach(
    const AttachRequest& request, AttachAhead ahead,
    std::function<void(const absl::Status&)> on_closed) {
  // On the data thread, like ReportDrained: no attachment can slip in between its check and the
  // end.
  SY_RETURN_IF_ERROR(CheckNotDraining());
  absl::StatusOr<AttachGrant> grant = engine_.Attach(request, std::move(ahead));
  fault_->Look(grant.status());
  // Registered in the same command as the attach, so a link that breaks in the next poll is
  // reported.
  if (grant.ok()) on_closed_[grant->request_ring.attachment] = std::move(on_closed);
  return grant;
}

void ExpertService::Impl::Close(AttachmentId attachment) {
  commands_.Post([this, attachment] {
    // The source closed it: it does not want to hear that it was closed.
    on_closed_.erase(attachment);
    engine_.Close(attachment);
  });
}

void ExpertService::Impl::OnClosed(AttachmentId attachment, const absl::Status& why) {
  const auto at = on_closed_.find(attachment);
  if (at == on_closed_.end()) return;
  // Taken out before it is called, so that it comes at most once.
  const auto tell = std::move(at->second);
  on_closed_.erase(at);
  if (tell) tell(why);
}

std::vector<AttachmentCounters> ExpertService::Impl::CountersOf(
    SessionId session, const std::optional<std::string>& caller) const {
  std::vector<AttachmentCounters> counters = engine_.CountersOf(session, caller);
  if (caller) return counters;  // direct calls are this process's own
  for (AttachmentCounters& direct : direct_->CountersOf(session)) {
    counters.push_back(std::move(direct));
  }
  return counters;
}

ExpertServiceView ExpertService::Impl::View() const {
  return {.experts = engine_.stats(),
          .direct = direct_->stats(),
          .transport = transport_->stats(),
          .resident = staging_.Resident()};
}

void ExpertService::Impl::RunDataThread() {
  while (!stopping_.load()) {
    const TimePoint now = clock_->Now();
    turns_.fetch_add(1, std::memory_order_relaxed);
    bool worked = commands_.RunAll();
    worked = engine_.Poll(now) || worked;
    batch_since_.store(engine_.BatchSince(), std::memory_order_relaxed);
    attached_.store(engine_.has_attachments(), std::memory_order_relaxed);
    ReportUnbound(now);
    if (draining_.load()) ReportDrained();
    // Whoever queues a command or stops wakes after it: Arm sees a wake that came before it, and
    // Wait ends by one that comes later.
    if (!worked && transport_->Arm()) transport_->Wait(SleepFor(now));
  }
}

Heartbeat ExpertService::Impl::MakeHeartbeat() const {
  const TimePoint since = batch_since_.load(std::memory_order_relaxed);
  return {.progress = turns_.load(std::memory_order_relaxed),
          .batch_age = std::max(Duration::zero(), clock_->Now() - since),
          .staging = staging_.Reports()};
}

void ExpertService::Impl::ReportDrained() {
  // Every turn while draining, because a session may close at any time.
  if (engine_.has_attachments()) return;
  const MutexLock lock(mutex_);
  drained_ = true;
  changed_.NotifyAll();
}

void ExpertService::Impl::ReportUnbound(TimePoint now) {
  for (std::size_t i = 0; i < retiring_.size();) {
    const std::shared_ptr<Retiring> retiring = retiring_[i];
    // Direct sessions get the same time as attachments.
    const Duration waited =
        now < retiring->ends ? now - retiring->grace_ends : Duration(kStepDeadlineMax);
    if (waited >= Duration::zero()) {
      direct_->ReleaseOverdue(retiring->deployment, retiring->epoch, waited);
    }
    if (!retiring->engine_unbound || direct_->IsBound(retiring->deployment, retiring->epoch)) {
      ++i;
      continue;
    }
    // Erased before `unbound` is called, because its receiver may post the Drop of the same epoch.
    retiring_.erase(retiring_.begin() + static_cast<std::ptrdiff_t>(i));
    direct_->Drop(retiring->deployment, retiring->epoch);
    retiring->unbound();
  }
}

Duration ExpertService::Impl::SleepFor(TimePoint now) const {
  // A direct session releases its binding without waking this thread, so retiring epochs are looked
  // at in short intervals too.
  Duration sleep = engine_.has_attachments() || !retiring_.empty() ? options_.sleep_max
                                                                   : options_.idle_sleep_max;
  if (const auto deadline = engine_.NextDeadline()) {
    sleep = std::min(sleep, std::max(*deadline - now, Duration::zero()));
  }
  return sleep;
}

void ExpertService::Impl::Stop(Duration drain) {
  const MutexLock stop_lock(stop_mutex_);
  if (!thread_.joinable()) return;
  draining_.store(true);
  transport_->Wake();
  {
    const TimePoint until = std::chrono::steady_clock::now() + drain;
    const MutexLock lock(mutex_);
    // Sources move to the new plan by themselves and close their attachments.
    while (!drained_ && changed_.WaitUntil(mutex_, until)) {
    }
  }
  // After the deadline the open attachments are cut off. Their sources see a broken link and take
  // another worker.
  stopping_.store(true);
  transport_->Wake();
  thread_.join();
  // Only now: a command that the thread had begun has been answered, and the rest gets
  // SESSION_CLOSED.
  commands_.Close();
  // Last, because the data thread hands dropped epochs to it.
  staging_.Stop();
}

absl::StatusOr<std::unique_ptr<ExpertService>> ExpertService::Create(ExpertServiceOptions options,
                                                                     Transport* transport,
                                                                     Clock* clock) {
  DeviceBackend* device = options.stager.device;
  auto fault = std::make_shared<DeviceFaultReport>(std::move(options.engine.on_device_fault));
  const auto look = [fault](const absl::Status& status) { fault->Look(status); };
  options.engine.on_device_fault = look;
  SY_ASSIGN_OR_RETURN(ExpertStreams streams,
                      ExpertStreams::Create(device, [transport] { transport->Wake(); }));
  options.engine.clock = clock;
  SY_ASSIGN_OR_RETURN(auto direct, DirectExperts::Create({.worker_id = options.stager.worker_id,
                                                          .device = device,
                                                          .batch = options.stager.batch,
                                                          .on_device_fault = look,
                                                          .times = options.engine.times,
                                                          .clock = clock}));
  return std::unique_ptr<ExpertService>(new ExpertService(
      std::make_unique<Impl>(std::move(options), transport, clock, std::move(streams),
                             std::move(direct), std::move(fault))));
}

ExpertService::ExpertService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ExpertService::~ExpertService() { impl_->Stop(Duration::zero()); }

void ExpertService::StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done) {
  impl_->StagePlan(prepare, std::move(done));
}

void ExpertService::Activate(absl::string_view deployment, Epoch epoch) {
  impl_->Activate(std::string(deployment), epoch);
}

void ExpertService::Retire(absl::string_view deployment, Epoch epoch,
                           std::function<void()> unbound) {
  impl_->Retire(std::string(deployment), epoch, std::move(unbound));
}

void ExpertService::ShortenRetire(absl::string_view deployment, Epoch epoch, Duration within) {
  impl_->ShortenRetire(std::string(deployment), epoch, within);
}

void ExpertService::Drop(absl::string_view deployment, Epoch epoch) {
  impl_->Drop(std::string(deployment), epoch);
}

Heartbeat ExpertService::MakeHeartbeat() const { return impl_->MakeHeartbeat(); }

bool ExpertService::IsInUse() const { return impl_->IsInUse(); }

std::vector<LoadReport> ExpertService::TakeLoad(TimePoint now) { return impl_->TakeLoad(now); }

std::vector<ResidentEpoch> ExpertService::Resident() const { return impl_->staging().Resident(); }

std::int64_t ExpertService::WeightBytes() const { return impl_->staging().WeightBytes(); }

absl::StatusOr<AttachGrant> ExpertService::Attach(
    const AttachRequest& request, std::function<void(const absl::Status&)> on_closed,
    Duration timeout) {
  SY_ASSIGN_OR_RETURN(ExpertEngine::Admitted admitted,
                      (impl_->Call<absl::StatusOr<ExpertEngine::Admitted>>(
                          timeout, [&] { return impl_->Admit(request); })));
  // Here, because the data thread has steps to serve: it must not wait for the source's process,
  // nor for pages.
  const AttachAhead ahead = impl_->MakeAhead(request, std::move(admitted));
  // A copy of it, so that after a refusal it is freed here too.
  return impl_->Call<absl::StatusOr<AttachGrant>>(
      timeout, [&] { return impl_->Attach(request, ahead, std::move(on_closed)); });
}

absl::Status ExpertService::Bind(AttachmentId attachment, const BindRequest& request,
                                 Duration timeout) {
  return impl_->Call<absl::Status>(timeout,
                                   [&] { return impl_->engine().Bind(attachment, request); });
}

absl::Status ExpertService::Release(AttachmentId attachment, const ReleaseRequest& request,
                                    Duration timeout) {
  return impl_->Call<absl::Status>(timeout,
                                   [&] { return impl_->engine().Release(attachment, request); });
}

void ExpertService::Close(AttachmentId attachment) { impl_->Close(attachment); }

absl::StatusOr<std::vector<AttachmentCounters>> ExpertService::CountersOf(
    SessionId session, Duration timeout, const std::optional<std::string>& caller) {
  using Result = absl::StatusOr<std::vector<AttachmentCounters>>;
  return impl_->Call<Result>(timeout, [&]() -> Result {
    // Both kinds in one answer: a gateway's session has attachments to other workers only, and
    // direct calls only here.
    std::vector<AttachmentCounters> counters = impl_->CountersOf(session, caller);
    if (!counters.empty()) return counters;
    return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession,
                     absl::StrFormat("session %s has no attachment here", ToHex(session)));
  });
}

absl::StatusOr<ExpertServiceView> ExpertService::View(Duration timeout) {
  using Result = absl::StatusOr<ExpertServiceView>;
  return impl_->Call<Result>(timeout, [&]() -> Result { return impl_->View(); });
}

const ExpertTimes& ExpertService::times() const { return impl_->times(); }

const LoadTimes& ExpertService::load_times() const { return impl_->staging().times(); }

DirectExperts& ExpertService::direct() { return impl_->direct(); }

void ExpertService::Stop(Duration drain) { impl_->Stop(drain); }

}  // namespace switchyard
