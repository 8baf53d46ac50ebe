// Runs a Coordinator in a process: gives it a thread, a clock, a store and a model loader.
//
//   services, in process --calls--> bounded queue --> driver thread: Coordinator::Step
//                       <--sinks, callbacks-- effects |--> store thread:  StateStore writes
//                                                     `--> ModelReads
//
// Every method may be called from any thread. None waits for the outcome: answers arrive through
// callbacks and sinks on the driver thread (or the thread that calls Shutdown). Each callback is
// called exactly once, at the latest by Shutdown. Callbacks and sinks must return quickly; they may
// call the driver, but neither Shutdown nor the destructor. When the queue is full, calls are
// refused with kResourceExhausted (NO_CREDITS).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/checkpoints/model_reads.h"
#include "coordinator/coordinator.h"
#include "coordinator/effects.h"
#include "coordinator/events.h"
#include "coordinator/placement/placement_policy.h"
#include "coordinator/recovery.h"
#include "coordinator/spec/deployment.h"
#include "coordinator/store/state_store.h"
#include "coordinator/threads/callback_table.h"
#include "coordinator/threads/driver_counters.h"
#include "coordinator/threads/driver_options.h"
#include "coordinator/threads/inbox.h"
#include "coordinator/threads/serial_executor.h"
#include "coordinator/threads/sink_table.h"
#include "coordinator/threads/sinks.h"
#include "coordinator/threads/stream_ids.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/once_set.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

// Connects to a worker at its endpoint and asks who it is. Calls `done` exactly once, within
// seconds, from any thread, also during the call. Called on the driver's thread; must not block.
using DialFunction =
    std::function<void(const DialWorker& request, std::function<void(absl::Status)> done)>;

class Driver {
 public:
  struct Parts {
    std::unique_ptr<StateStore> store;
    ModelChecker check_model;
    ModelLoader load_model;
    // This and the next three outlive the driver.
    Clock* clock = nullptr;
    Rng* rng = nullptr;
    Logger* logger = nullptr;
    // Names of lines that this process logs once; null: a set of its own.
    OnceSet* once = nullptr;
    // Null: every worker counts as reached, as in one process.
    DialFunction dial = nullptr;
  };
  using DeploymentCallback = std::function<void(absl::StatusOr<DeploymentView>)>;
  using DutyCallback = std::function<void(absl::StatusOr<DutyView>)>;
  using SessionCallback = std::function<void(absl::StatusOr<SessionGrant>)>;
  using StatusCallback = std::function<void(absl::Status)>;

  // Reads the store and starts the threads. Errors: kUnavailable and kDataLoss (STORE_WRITE) of
  // the store; kInvalidArgument (BAD_CONFIG) for an unknown placement policy.
  static absl::StatusOr<std::unique_ptr<Driver>> Create(DriverOptions options, Parts parts);
  ~Driver();  // as Shutdown(1 s)
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // `sink` is used until OnWorkerStreamClosed has returned. A stream beyond max_streams is refused
  // through Close. Errors: kUnavailable (COORDINATOR_LOST) after Shutdown.
  absl::StatusOr<StreamId> OpenWorkerStream(WorkerStreamSink* sink);
  // Call it in the order of the stream's messages. `handled` is given up with the message. Errors:
  // kResourceExhausted (NO_CREDITS): end the stream; the worker comes back with what it holds.
  absl::Status OnWorkerMessage(StreamId stream, WorkerMessage message,
                               std::shared_ptr<const void> handled = nullptr);
  // Call it once for each stream, also after Close: it ends calls of the sink.
  void OnWorkerStreamClosed(StreamId stream);

  // Answers with the deployment once it is stored, or as it would be (`dry_run`), or before where
  // its weights take their time (coordinator/applies.h). Errors: kInvalidArgument (BAD_CONFIG),
  // kDataLoss (CHECKPOINT), kUnavailable (STORE_WRITE; NOT_READY while another one is new).
  void ApplyDeployment(DeploymentSpec spec, bool dry_run, DeploymentCallback done,
                       bool hash_weights = false);
  // The same for its new record, that of the revision. Errors: kNotFound (UNKNOWN_MODEL;
  // BAD_REQUEST for a revision that is not kept), kUnavailable as above.
  void RollbackDeployment(std::string deployment, std::uint64_t to_revision,
                          DeploymentCallback done);
  // Answers once the deletion is stored (coordinator/deletions.h). Errors: kNotFound
  // (UNKNOWN_MODEL), kUnavailable (STORE_WRITE; NOT_READY while an apply of it runs).
  void DeleteDeployment(std::string deployment, bool now, DeploymentCallback done);
  // Answers once the duty is stored. Errors: those of Duties::Request; kUnavailable (STORE_WRITE).
  void SetDuty(std::string worker, WorkerDuty duty, bool force, DutyCallback done);

  // Errors: kNotFound (UNKNOWN_MODEL), kInvalidArgument (BAD_REQUEST, TOO_MANY_TOKENS, BAD_TOP_K),
  // kUnimplemented (UNSUPPORTED), kUnavailable (NOT_READY), kResourceExhausted (TOO_MANY_SESSIONS).
  void OpenSession(OpenSessionRequest request, SessionCallback done, TenantRef tenant = nullptr);
  void CloseSession(SessionId session, StatusCallback done, std::string caller = {});
  // `sink` is used until StopWatch has returned. Refusals come through OnClosed (session_table.h).
  absl::StatusOr<WatchId> Watch(WatchRequest request, PlanUpdateSink* sink, std::string peer = {},
                                TenantRef tenant = nullptr);
  // As OnWorkerStreamClosed: once, also after OnClosed.
  void StopWatch(WatchId watch);

  // Each waits for at most one step of the coordinator. The journal's entries after that number.
  [[nodiscard]] CoordinatorView View() const;
  [[nodiscard]] std::vector<JournalEntry> JournalAfter(std::uint64_t number) const;
  [[nodiscard]] std::vector<SessionView> Sessions() const;
  [[nodiscard]] LoadView Load(const std::string& deployment, const LoadQuery& query) const;
  [[nodiscard]] const DriverCounters& counters() const { return *counters_; }  // waits for nothing
  // Evaluates `done` on a view now and after each step of the coordinator, until it is true or
  // `timeout` has passed. Returns the last view. `done` runs under the coordinator's lock and must
  // not call the driver. Must not be called from a callback, which would block the driver thread.
  CoordinatorView WaitForView(absl::FunctionRef<bool(const CoordinatorView&)> done,
                              Duration timeout) const;

  // Closes every stream and watch, answers every callback with kUnavailable (COORDINATOR_LOST) and
  // ends the threads, after the store writes in progress. False when a model is still read after
  // `deadline`, on a thread of its own: a process that does not wait must leave by quick_exit. May
  // be called again, to wait longer.
  bool Shutdown(Duration deadline);

 private:
  Driver(DriverOptions options, Parts parts, std::unique_ptr<PlacementPolicy> placement,
         RecoveredState stored);

  std::uint64_t NextId() { return last_id_.fetch_add(1) + 1; }
  // Puts the callback into `table` and pushes the event that `make` returns for its id; a full
  // queue is answered at once.
  template <typename Callback, typename MakeEvent>
  void SendRequest(CallbackTable<RequestId, Callback>& table, Callback done, MakeEvent make);
  // The same for a sink.
  template <typename Id, typename Sink, typename MakeEvent>
  absl::StatusOr<Id> AddSink(SinkTable<Id, Sink>& table, Sink* sink, MakeEvent make);

  // The driver thread.
  void Loop();
  void Step(const Event& event);
  // Each carries out one effect.
  void Perform(const SendMessage& effect);
  void Perform(const CloseStream& effect);
  void Perform(const DialWorker& effect);
  void Perform(const CheckModel& effect);
  void Perform(const LoadModel& effect);
  void Perform(const CancelLoad& effect);
  void Perform(WriteStore& effect);
  void Perform(AnswerDeployment& effect);
  void Perform(AnswerDuty& effect);
  void Perform(AnswerSession& effect);
  void Perform(const AnswerEnd& effect);
  void Perform(const SendPlanUpdate& effect);
  void Perform(const CloseWatch& effect);
  void Perform(const Report& effect);

  const DriverOptions options_;
  const std::shared_ptr<StateStore> store_;  // shared: a write may outlive the driver
  const std::shared_ptr<DriverCounters> counters_ = std::make_shared<DriverCounters>();  // as well
  const DialFunction dial_;
  Clock* const clock_;
  Logger* const logger_;
  OnceSet own_once_;
  OnceSet* const once_;
  const std::unique_ptr<PlacementPolicy> placement_;

  mutable Mutex coordinator_mutex_;
  mutable CondVar stepped_;  // notified after each step
  Coordinator coordinator_ SY_GUARDED_BY(coordinator_mutex_);
  TimePoint due_ = TimePoint::max();           // Coordinator::NextDue; the driver thread's
  const std::shared_ptr<Inbox<Event>> inbox_;  // shared: a model load may outlive the driver
  SinkTable<StreamId, WorkerStreamSink> streams_;
  SinkTable<WatchId, PlanUpdateSink> watches_;
  CallbackTable<RequestId, DeploymentCallback> deployments_;
  CallbackTable<RequestId, DutyCallback> duties_;
  CallbackTable<RequestId, SessionCallback> opens_;
  CallbackTable<RequestId, StatusCallback> ends_;
  std::atomic<std::uint64_t> last_id_{0};
  SerialExecutor writer_;
  ModelReads reads_;  // the driver thread's, and Shutdown's after its end
  Mutex shutdown_mutex_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace switchyard
