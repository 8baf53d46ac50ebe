// A worker's own experts for the sessions that the same process is the source of (the gateway
// binding): called directly, with no ring between. Rows and hits are counted for each session, with
// no wire bytes.
//
// A session binds an epoch by Bind and releases it by Release or Close. A retiring epoch takes no
// new binding and is unbound by Drop at the latest.
// Thread-safe. Chunks run in order on streams of their own, one for each class of work.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/ids.h"
#include "core/plan.h"
#include "core/session_messages.h"
#include "worker/device/device_backend.h"
#include "worker/expert/batch_memory.h"
#include "worker/expert/expert_attachment.h"
#include "worker/expert/expert_stats.h"
#include "worker/expert/expert_times.h"
#include "worker/expert/layer_runtime.h"
#include "worker/expert/served_counts.h"
#include "worker/routing/own_experts.h"

namespace switchyard {

class DirectExperts final : public OwnExperts {
 public:
  struct Options {
    std::string worker_id;
    DeviceBackend* device = nullptr;  // outlives this
    BatchOptions batch;
    // Called at each run that fails with failure scope `worker`, from the thread that starts or
    // finishes it; may be empty.
    std::function<void(const absl::Status& why)> on_device_fault = {};
    // Where runs are measured, and by which clock, which outlives this. Null: they are not.
    std::shared_ptr<ExpertTimes> times = nullptr;
    const Clock* clock = nullptr;
  };
  // Errors: those of MakeStream.
  static absl::StatusOr<std::unique_ptr<DirectExperts>> Create(Options options);
  // Every run has been destroyed before: a run writes its counts here.
  ~DirectExperts() override;

  absl::Status Bind(const OwnBinding& binding) override;
  // Enqueues the chunk and does not wait for it; `chunk`'s rows and `out` stay valid until the run
  // is destroyed. Errors: those of OwnExperts, and those of ParseRequestMetadata.
  absl::StatusOr<std::unique_ptr<OwnRun>> Start(const OwnChunk& chunk) override;
  // `on_progress` comes from the device's threads whenever a run may have ended. After the call
  // returns, the former callback runs no more.
  void SetOnProgress(std::function<void()> on_progress) override;
  // Both ignore what is not known: a session that never ran here has nothing to release.
  void Release(SessionId session, Epoch epoch) override;
  void Close(SessionId session) override;
  // The epoch that `binding` would bind, for whoever has to look at it first. Binds nothing.
  // Errors: kFailedPrecondition (STALE_EPOCH), as Bind.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const EpochRuntime>> CommittedRuntime(
      const OwnBinding& binding) const;
  // For whoever asks to join a group, before anything else, so that a caller without a grant learns
  // nothing of what is here. Errors: those of CheckGrant, unless an epoch of the deployment has the
  // key.
  [[nodiscard]] absl::Status CheckGranted(const JoinRequest& request) const;
  // An epoch that the session binds, by its number. Errors: kUnavailable or kFailedPrecondition
  // (STALE_EPOCH).
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const EpochRuntime>> Bound(
      SessionId session, absl::string_view deployment, Epoch epoch) const;
  [[nodiscard]] DirectStats stats() const;
  // The longest deadline that the session's bindings have named; zero for an unknown one.
  [[nodiscard]] Duration StepDeadlineOf(SessionId session) const;
  // Empty when the session has bound nothing here; else one entry, path "inproc".
  [[nodiscard]] std::vector<AttachmentCounters> CountersOf(SessionId session) const;

  // The life of an epoch, in this order: Activate, Retire, Drop. A call for an epoch that is not
  // known does nothing.
  void Activate(std::shared_ptr<const EpochRuntime> runtime);
  void Retire(absl::string_view deployment, Epoch epoch);
  // Ends the bindings of the epoch by sessions whose steps take at most `waited`.
  void ReleaseOverdue(absl::string_view deployment, Epoch epoch, Duration waited);
  // True while a session binds the epoch. Runs that have not ended hold it besides.
  [[nodiscard]] bool IsBound(absl::string_view deployment, Epoch epoch) const;
  void Drop(absl::string_view deployment, Epoch epoch);
  // A session binds some epoch.
  [[nodiscard]] bool IsInUse() const;

 private:
  class Run;
  // An epoch between Activate and Drop.
  struct Committed {
    std::shared_ptr<const EpochRuntime> runtime;
    bool retiring = false;
  };
  // A session that has bound an epoch. Its counts are those of the deployment's layers.
  struct Session {
    explicit Session(const EpochRuntime& runtime) : counts(runtime, LoadLane::kDirect) {}
    std::vector<std::shared_ptr<const EpochRuntime>> bound;
    Epoch overdue;  // the newest that ReleaseOverdue took
    Duration step_deadline{};
    ServedCounts counts;
  };
  // Scratch for one shape and class of work.
  struct Memory {
    MoeShape shape;
    std::size_t work_class = 0;
    std::shared_ptr<const BatchMemory> memory;
  };

  explicit DirectExperts(Options options) : options_(std::move(options)) {}
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const EpochRuntime>> FindCommitted(
      const OwnBinding& binding) const SY_REQUIRES(mutex_);
  // Returns the epoch of `chunk`, which its session must bind. Takes mutex_.
  absl::StatusOr<std::shared_ptr<const EpochRuntime>> FindBound(const OwnChunk& chunk);
  // A refusal with STALE_EPOCH.
  [[nodiscard]] absl::Status Stale(absl::StatusCode code, absl::string_view deployment, Epoch epoch,
                                   absl::string_view why) const;
  absl::StatusOr<std::shared_ptr<const BatchMemory>> MemoryFor(const MoeShape& shape,
                                                               std::size_t work_class)
      SY_REQUIRES(run_mutex_);
  void Count(SessionId session, const LayerRuntime& layer, const RequestView& request,
             std::uint32_t nan_rows);
  // Called by the device's streams.
  void OnProgress();
  // Reports `status` if the device is gone, and counts a failure.
  absl::Status Look(absl::Status status);
  [[nodiscard]] TimePoint MeasuredNow() const {
    return options_.clock == nullptr ? TimePoint{} : options_.clock->Now();
  }

  Options options_;
  // DirectStats; relaxed, because no other data is published through them.
  std::atomic<std::uint64_t> chunks_{0};
  std::atomic<std::uint64_t> rows_{0};
  std::atomic<std::uint64_t> nan_rows_{0};
  std::atomic<std::uint64_t> failed_{0};

  mutable Mutex mutex_;
  std::vector<Committed> committed_ SY_GUARDED_BY(mutex_);
  std::map<SessionId, Session> sessions_ SY_GUARDED_BY(mutex_);

  Mutex progress_mutex_;
  std::function<void()> on_progress_ SY_GUARDED_BY(progress_mutex_);

  // A stream takes one caller at a time. Held to enqueue, never while the device computes.
  Mutex run_mutex_;
  std::array<std::unique_ptr<Stream>, 2> streams_ SY_GUARDED_BY(run_mutex_);  // kDecode, kPrefill
  std::vector<Memory> memories_ SY_GUARDED_BY(run_mutex_);
};

}  // namespace switchyard
