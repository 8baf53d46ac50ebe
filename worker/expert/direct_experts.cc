#include "worker/expert/direct_experts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/expert/attach_grant.h"
#include "worker/expert/device_fault.h"
#include "worker/expert/expert_batch.h"
#include "worker/routing/request_codec.h"

namespace switchyard {
namespace {

bool Is(const EpochRuntime& runtime, absl::string_view deployment, Epoch epoch) {
  return runtime.epoch() == epoch && deployment == runtime.deployment();
}

}  // namespace

// One chunk: its routing, its batch and what is counted when it ends.
class DirectExperts::Run final : public OwnRun {
 public:
  Run(DirectExperts* experts, const OwnChunk& chunk, std::shared_ptr<const EpochRuntime> runtime)
      : experts_(experts), session_(chunk.session), runtime_(std::move(runtime)) {}

  absl::Status Start(const OwnChunk& chunk);
  [[nodiscard]] bool done() const override { return batch_->done(); }
  absl::Status Finish() override {
    if (times_ != nullptr) {
      const Duration took = experts_->MeasuredNow() - started_at_;
      times_->compute.Observe(took);
      times_->own.Observe(took);
    }
    // The rows of a chunk that failed are not counted, as those of a request that is answered with
    // an error are not.
    SY_RETURN_IF_ERROR(experts_->Look(batch_->Finish()));
    experts_->Count(session_, *layer_, request_, batch_->inputs()[0].nan_rows);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadRouting(const OwnChunk& chunk);

  DirectExperts* const experts_;
  const SessionId session_;
  const std::shared_ptr<const EpochRuntime> runtime_;
  const LayerRuntime* layer_ = nullptr;
  std::vector<std::uint32_t> metadata_;
  RequestView request_;  // over metadata_
  std::vector<std::int32_t> slots_;
  std::vector<float> weights_;
  std::unique_ptr<ExpertBatch> batch_;
  BatchTimes* times_ = nullptr;  // null: it is not measured
  TimePoint started_at_{};
};

absl::Status DirectExperts::Run::ReadRouting(const OwnChunk& chunk) {
  const MoeShape& shape = runtime_->shape();
  layer_ = runtime_->FindLayer(chunk.layer);
  if (layer_ == nullptr) {
    return MakeError(
        absl::StatusCode::kNotFound, Reason::kUnknownLayer,
        absl::StrFormat("epoch %d of %s has no MoE layer %d", chunk.epoch.value, chunk.deployment,
                        chunk.layer.value),
        {{"worker", experts_->options_.worker_id}, {"layer", absl::StrCat(chunk.layer.value)}});
  }
  if (!layer_->Takes(chunk.format)) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadDtype,
                     absl::StrFormat("layer %d: the plan does not allow %s rows", chunk.layer.value,
                                     WireFormatName(chunk.format)));
  }
  // Words, because the parser reads 32-bit values and the chunk's bytes may lie unaligned.
  metadata_.resize((chunk.metadata.size() + 3) / 4);
  if (!metadata_.empty()) {
    std::memcpy(metadata_.data(), chunk.metadata.data(), chunk.metadata.size());
  }
  SY_RETURN_IF_ERROR(ParseRequestMetadata(metadata_,
                                          {.mode = chunk.mode,
                                           .rows = chunk.count,
                                           .hidden = shape.hidden,
                                           .top_k = shape.top_k,
                                           .local_slots = layer_->local_slots()},
                                          &request_));
  slots_.resize(std::size_t{chunk.count} *
                static_cast<std::size_t>(RoutingWidth(chunk.mode, shape.top_k)));
  weights_.resize(slots_.size());
  ExpandRouting(request_, slots_, weights_);
  return absl::OkStatus();
}

absl::Status DirectExperts::Run::Start(const OwnChunk& chunk) {
  SY_RETURN_IF_ERROR(ReadRouting(chunk));
  // The same classes as for rings, so that decode work of either kind never waits behind prefill.
  const WorkClass of = WorkClassOf(chunk.phase, chunk.mode);
  const auto work_class = static_cast<std::size_t>(of);
  // From here to Start: two chunks must not interleave their pieces on one stream.
  const MutexLock lock(experts_->run_mutex_);
  SY_ASSIGN_OR_RETURN(auto memory, experts_->MemoryFor(runtime_->shape(), work_class));
  batch_ = std::make_unique<ExpertBatch>(experts_->streams_[work_class].get(),
                                         experts_->options_.device->host_access());
  batch_->Begin({.layer = layer_, .mode = chunk.mode}, runtime_, std::move(memory));
  batch_->Add({.codec = layer_->Find(chunk.format.dtype)->codec.get(),
               .rows = chunk.rows,
               .scales = chunk.scales,
               .count = chunk.count,
               .slots = slots_.data(),
               .weights = weights_.data(),
               .out = chunk.out});
  started_at_ = experts_->MeasuredNow();
  if (experts_->options_.times != nullptr) {
    times_ = &experts_->options_.times->Of(of, chunk.mode);
    times_->rows.Observe(std::uint64_t{chunk.count});
  }
  return batch_->Start();
}

absl::StatusOr<std::unique_ptr<DirectExperts>> DirectExperts::Create(Options options) {
  std::unique_ptr<DirectExperts> experts(new DirectExperts(std::move(options)));
  const MutexLock lock(experts->run_mutex_);
  for (const WorkClass of : {WorkClass::kDecode, WorkClass::kPrefill}) {
    SY_ASSIGN_OR_RETURN(
        experts->streams_[static_cast<std::size_t>(of)],
        experts->options_.device->MakeStream(
            {.work_class = of, .on_progress = [raw = experts.get()] { raw->OnProgress(); }}));
  }
  return experts;
}

DirectExperts::~DirectExperts() = default;

absl::StatusOr<std::unique_ptr<OwnRun>> DirectExperts::Start(const OwnChunk& chunk) {
  auto runtime = FindBound(chunk);
  SY_RETURN_IF_ERROR(Look(runtime.status()));
  auto run = std::make_unique<Run>(this, chunk, *std::move(runtime));
  SY_RETURN_IF_ERROR(Look(run->Start(chunk)));
  return run;
}

absl::Status DirectExperts::Look(absl::Status status) {
  if (!status.ok()) failed_.fetch_add(1, std::memory_order_relaxed);
  if (IsDeviceFault(status) && options_.on_device_fault) options_.on_device_fault(status);
  return status;
}

DirectStats DirectExperts::stats() const {
  return {.chunks = chunks_.load(std::memory_order_relaxed),
          .rows = rows_.load(std::memory_order_relaxed),
          .nan_rows = nan_rows_.load(std::memory_order_relaxed),
          .failed = failed_.load(std::memory_order_relaxed)};
}

void DirectExperts::SetOnProgress(std::function<void()> on_progress) {
  const MutexLock lock(progress_mutex_);
  on_progress_ = std::move(on_progress);
}

void DirectExperts::OnProgress() {
  const MutexLock lock(progress_mutex_);
  // Called with the lock held: SetOnProgress thereby waits for a callback that runs, and its caller
  // may then destroy what the callback points at.
  if (on_progress_) on_progress_();
}

void DirectExperts::Count(SessionId session, const LayerRuntime& layer, const RequestView& request,
                          std::uint32_t nan_rows) {
  chunks_.fetch_add(1, std::memory_order_relaxed);
  rows_.fetch_add(request.rows(), std::memory_order_relaxed);
  nan_rows_.fetch_add(nan_rows, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  const auto at = sessions_.find(session);
  // The session may have closed while its chunk ran.
  if (at == sessions_.end()) return;
  // No row crossed a wire.
  at->second.counts.Add(layer, request, 0, 0);
  at->second.counts.AddNanRows(nan_rows);
}

absl::StatusOr<std::shared_ptr<const EpochRuntime>> DirectExperts::CommittedRuntime(
    const OwnBinding& binding) const {
  const MutexLock lock(mutex_);
  return FindCommitted(binding);
}

absl::Status DirectExperts::CheckGranted(const JoinRequest& request) const {
  if (request.attach.caller.empty()) return absl::OkStatus();
  absl::Status granted = CheckGrant(request, GrantKeys(), options_.worker_id);
  const MutexLock lock(mutex_);
  for (const Committed& held : committed_) {
    if (granted.ok() || request.attach.deployment != held.runtime->deployment()) continue;
    granted = CheckGrant(request, *held.runtime, options_.worker_id);
  }
  return granted;
}

absl::StatusOr<std::shared_ptr<const EpochRuntime>> DirectExperts::FindCommitted(
    const OwnBinding& binding) const {
  for (const Committed& held : committed_) {
    if (!held.retiring && Is(*held.runtime, binding.deployment, binding.epoch) &&
        held.runtime->hash == binding.hash) {
      return held.runtime;
    }
  }
  // The source takes it as it does from any worker: it fetches the plan.
  return Stale(absl::StatusCode::kFailedPrecondition, binding.deployment, binding.epoch,
               "is not committed here under that hash; fetch the current plan");
}

absl::Status DirectExperts::Bind(const OwnBinding& binding) {
  const MutexLock lock(mutex_);
  const auto is = [&](const EpochRuntime& runtime) {
    return Is(runtime, binding.deployment, binding.epoch) && runtime.hash == binding.hash;
  };
  auto session = sessions_.find(binding.session);
  const bool bound = session != sessions_.end() &&
                     std::any_of(session->second.bound.begin(), session->second.bound.end(),
                                 [&](const auto& runtime) { return is(*runtime); });
  if (!bound) {
    // A binding from before the retirement serves on; only a new one needs an epoch that is not
    // retiring.
    SY_ASSIGN_OR_RETURN(const auto runtime, FindCommitted(binding));
    if (session == sessions_.end()) {
      session = sessions_.emplace(binding.session, Session(*runtime)).first;
    }
    // Counters are arrays by layer and expert, so one set cannot count epochs of two shapes.
    if (!session->second.counts.Fits(*runtime)) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
          absl::StrFormat("epoch %d of %s has layers or sizes that differ from those the session "
                          "began with; open a new session",
                          binding.epoch.value, binding.deployment));
    }
    // Chunks of the older epochs may be queued, so these stay until the source releases them.
    session->second.bound.push_back(runtime);
  }
  Duration& deadline = session->second.step_deadline;
  deadline = std::max(deadline, std::min(binding.step_deadline, kStepDeadlineMax));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const EpochRuntime>> DirectExperts::FindBound(
    const OwnChunk& chunk) {
  const MutexLock lock(mutex_);
  const auto session = sessions_.find(chunk.session);
  if (session != sessions_.end()) {
    for (const auto& bound : session->second.bound) {
      if (Is(*bound, chunk.deployment, chunk.epoch) && bound->hash == chunk.hash) return bound;
    }
    if (chunk.epoch <= session->second.overdue) {
      return Stale(absl::StatusCode::kUnavailable, chunk.deployment, chunk.epoch,
                   "was retired, and no longer waits for steps; retry when the next epoch is "
                   "bound");
    }
  }
  return Stale(absl::StatusCode::kFailedPrecondition, chunk.deployment, chunk.epoch,
               "is not bound by this session; fetch the current plan");
}

absl::StatusOr<std::shared_ptr<const EpochRuntime>> DirectExperts::Bound(
    SessionId session, absl::string_view deployment, Epoch epoch) const {
  const MutexLock lock(mutex_);
  const auto at = sessions_.find(session);
  if (at != sessions_.end()) {
    for (const auto& bound : at->second.bound) {
      if (Is(*bound, deployment, epoch)) return bound;
    }
  }
  return Stale(absl::StatusCode::kUnavailable, deployment, epoch,
               "is not bound by the session any more");
}

Duration DirectExperts::StepDeadlineOf(SessionId session) const {
  const MutexLock lock(mutex_);
  const auto at = sessions_.find(session);
  return at == sessions_.end() ? Duration::zero() : at->second.step_deadline;
}

absl::Status DirectExperts::Stale(absl::StatusCode code, absl::string_view deployment, Epoch epoch,
                                  absl::string_view why) const {
  return MakeError(code, Reason::kStaleEpoch,
                   absl::StrFormat("worker %s: epoch %d of %s %s", options_.worker_id, epoch.value,
                                   deployment, why),
                   {{"worker", options_.worker_id}, {"epoch", absl::StrCat(epoch.value)}});
}

// The memory of a shape is kept for good: a worker serves few shapes, and a later session of the
// same shape starts without an allocation.
absl::StatusOr<std::shared_ptr<const BatchMemory>> DirectExperts::MemoryFor(
    const MoeShape& shape, std::size_t work_class) {
  for (const Memory& held : memories_) {
    if (held.shape == shape && held.work_class == work_class) return held.memory;
  }
  SY_ASSIGN_OR_RETURN(BatchMemory made,
                      BatchMemory::Create(options_.device, shape, options_.batch));
  memories_.push_back({.shape = shape,
                       .work_class = work_class,
                       .memory = std::make_shared<const BatchMemory>(std::move(made))});
  return memories_.back().memory;
}

void DirectExperts::Release(SessionId session, Epoch epoch) {
  const MutexLock lock(mutex_);
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return;
  std::erase_if(at->second.bound, [epoch](const auto& bound) { return bound->epoch() == epoch; });
}

void DirectExperts::Close(SessionId session) {
  const MutexLock lock(mutex_);
  // Chunks that run go on: they hold their epoch, and Count finds that the session is gone.
  sessions_.erase(session);
}

std::vector<AttachmentCounters> DirectExperts::CountersOf(SessionId session) const {
  const MutexLock lock(mutex_);
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return {};
  AttachmentCounters counters = at->second.counts.Snapshot();
  counters.session = session;
  counters.worker_id = options_.worker_id;
  // The name that tells an operator why these rows have no wire bytes.
  counters.path = "inproc";
  return {std::move(counters)};
}

void DirectExperts::Activate(std::shared_ptr<const EpochRuntime> runtime) {
  const MutexLock lock(mutex_);
  committed_.push_back({.runtime = std::move(runtime)});
}

void DirectExperts::Retire(absl::string_view deployment, Epoch epoch) {
  const MutexLock lock(mutex_);
  for (Committed& held : committed_) {
    // Sessions that bind it already go on, until they release it or it is overdue.
    if (Is(*held.runtime, deployment, epoch)) held.retiring = true;
  }
}

void DirectExperts::ReleaseOverdue(absl::string_view deployment, Epoch epoch, Duration waited) {
  const MutexLock lock(mutex_);
  for (auto& [id, session] : sessions_) {
    // Its last step may still be running, and must end on the epoch that it began on.
    if (session.step_deadline > waited) continue;
    const auto released = std::erase_if(
        session.bound, [&](const auto& bound) { return Is(*bound, deployment, epoch); });
    if (released > 0) session.overdue = std::max(session.overdue, epoch);
  }
}

bool DirectExperts::IsBound(absl::string_view deployment, Epoch epoch) const {
  const MutexLock lock(mutex_);
  // Few sessions and two epochs at most, and only while an epoch retires: no index is kept.
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.bound.begin(), entry.second.bound.end(),
                       [&](const auto& bound) { return Is(*bound, deployment, epoch); });
  });
}

bool DirectExperts::IsInUse() const {
  const MutexLock lock(mutex_);
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [](const auto& entry) { return !entry.second.bound.empty(); });
}

void DirectExperts::Drop(absl::string_view deployment, Epoch epoch) {
  const MutexLock lock(mutex_);
  // Runs that have not ended hold the epoch by themselves, so this frees no weights under them.
  std::erase_if(committed_,
                [&](const Committed& held) { return Is(*held.runtime, deployment, epoch); });
  for (auto& [id, session] : sessions_) {
    std::erase_if(session.bound, [&](const auto& bound) { return Is(*bound, deployment, epoch); });
  }
}

}  // namespace switchyard
