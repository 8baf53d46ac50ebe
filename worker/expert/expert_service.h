// A worker's expert side as the rest of the process sees it: the data thread around the
// ExpertEngine, the staging thread around the EpochStager, and thread-safe calls to both.
//
//   gRPC handlers --calls with a deadline--> data thread: ExpertEngine, Transport
//   agent --StagePlan--> staging thread --done--> agent --Activate, Retire, Drop--> data thread
//   dropped epochs --> staging thread, which frees them: the data thread frees no weights
//
// Thread-safe. Callbacks come from the data or the staging thread and must return quickly; they may
// post back but must not call and wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/load_report.h"
#include "core/session_messages.h"
#include "worker/expert/direct_experts.h"
#include "worker/expert/epoch_stager.h"
#include "worker/expert/expert_engine.h"
#include "worker/expert/expert_times.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct ExpertServiceOptions {
  StagerOptions stager;
  // Identity, batch and on_closed are set by the service. on_device_fault is called once, from
  // whichever thread meets the fault first (worker/expert/device_fault.h).
  ExpertEngineOptions engine;
  // How long the data thread sleeps at most while an attachment is open. Short, because a receiver
  // cannot know that something is outstanding.
  Duration sleep_max = std::chrono::milliseconds(5);
  // The same without attachments.
  Duration idle_sleep_max = std::chrono::milliseconds(100);
  // Calls that wait at once; more are refused (CommandQueue).
  std::size_t calls_max = 256;
};

struct ExpertServiceView {
  ExpertStats experts;
  DirectStats direct;
  TransportStats transport;
  std::vector<ResidentEpoch> resident;  // staged and committed, oldest first
};

class ExpertService {
 public:
  // Starts both threads. `transport`, `clock` and the stager's device outlive the service. Errors:
  // those of MakeStream.
  static absl::StatusOr<std::unique_ptr<ExpertService>> Create(ExpertServiceOptions options,
                                                               Transport* transport, Clock* clock);
  // Stop(0) if it has not been stopped.
  ~ExpertService();
  ExpertService(const ExpertService&) = delete;
  ExpertService& operator=(const ExpertService&) = delete;

  // The work of PREPARE, COMMIT, RETIRE and ABORT, in the terms of worker/agent/plan_stager.h. None
  // of these blocks; direct sessions may bind the epoch when Activate returns; each callback comes
  // at most once and not after Drop. Errors for `done`: those of EpochStager::Stage and
  // StagingThread::Stage.
  void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done);
  void Activate(absl::string_view deployment, Epoch epoch);
  void Retire(absl::string_view deployment, Epoch epoch, std::function<void()> unbound);
  void ShortenRetire(absl::string_view deployment, Epoch epoch, Duration within);
  void Drop(absl::string_view deployment, Epoch epoch);
  // How the data thread, its batches and the staging move. Of direct sessions nothing: their
  // callers wait themselves. Does not wait for the data thread or for a weight.
  [[nodiscard]] Heartbeat MakeHeartbeat() const;
  // Whether there is an attachment, as of the data thread's last turn, or a binding of another kind
  // of session. Likewise.
  [[nodiscard]] bool IsInUse() const;
  // The rows that the experts served since the last call (LoadMeter::Take); likewise.
  [[nodiscard]] std::vector<LoadReport> TakeLoad(TimePoint now);
  // Staged and committed epochs, oldest first, and the bytes of their weights. Like MakeHeartbeat,
  // these do not wait for the data thread or for a weight.
  [[nodiscard]] std::vector<ResidentEpoch> Resident() const;
  [[nodiscard]] std::int64_t WeightBytes() const;

  // Calls that wait at most `timeout` for the data thread. Errors: those of ExpertEngine, and those
  // of CommandQueue::Call when the data thread did not run the call. Attach waits twice, and makes
  // the attachment's memory in between (Transport::MakeMemory). `on_closed` is called once if the
  // worker closes the attachment by itself.
  absl::StatusOr<AttachGrant> Attach(const AttachRequest& request,
                                     std::function<void(const absl::Status&)> on_closed,
                                     Duration timeout);
  absl::Status Bind(AttachmentId attachment, const BindRequest& request, Duration timeout);
  absl::Status Release(AttachmentId attachment, const ReleaseRequest& request, Duration timeout);
  // For a source that has gone or is done. Does not block; on_closed may still come before it takes
  // effect.
  void Close(AttachmentId attachment);
  // The counts of the session's attachments and direct calls; if `caller` is set, only of the
  // attachments that it made. Errors: kNotFound (UNKNOWN_SESSION) when there are none, and those of
  // CommandQueue::Call.
  absl::StatusOr<std::vector<AttachmentCounters>> CountersOf(
      SessionId session, Duration timeout, const std::optional<std::string>& caller = {});
  absl::StatusOr<ExpertServiceView> View(Duration timeout);
  // These wait for nothing: they are read while the threads of the work write them.
  [[nodiscard]] const ExpertTimes& times() const;
  [[nodiscard]] const LoadTimes& load_times() const;

  // For sessions of which this process is the source.
  [[nodiscard]] DirectExperts& direct();

  // Refuses new attachments, waits up to `drain` for the open ones to be closed, then ends both
  // threads: staging is stopped, what waits is answered kUnavailable (SESSION_CLOSED). Idempotent.
  void Stop(Duration drain);

 private:
  class Impl;
  explicit ExpertService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
