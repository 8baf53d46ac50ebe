// The coordinator as the rest of the world calls it: a thread around the sans-I/O Coordinator.
//
//   services, in process --calls--> bounded queue --> driver thread: Coordinator::Step
//                       <--sinks, callbacks-- effects |--> store thread:  StateStore writes
//                                                     `--> loader thread: ModelLoader
//
// Every method may be called from any thread. None waits for the outcome: answers come through
// callbacks and sinks, on the driver thread (or that of Shutdown), and each callback is called
// exactly once, at the latest by Shutdown. They must return quickly; they may call the driver, but
// neither Shutdown nor its destructor. A full queue refuses with kResourceExhausted (NO_CREDITS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/options.h"
#include "coordinator/stream_ids.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/once_set.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

class StateStore;

// The coordinator's end of one worker's stream. May be called before OpenWorkerStream has returned.
class WorkerStreamSink {
 public:
  virtual ~WorkerStreamSink() = default;
  virtual void Send(const CoordinatorMessage& message) = 0;
  // Told at most once: the coordinator ends the stream with `why` (the status of the RPC).
  virtual void Close(const absl::Status& why) = 0;
};

// The coordinator's end of one WatchPlan.
class PlanUpdateSink {
 public:
  virtual ~PlanUpdateSink() = default;
  virtual void OnNews(const std::shared_ptr<const PlanUpdate>& news) = 0;
  // Told at most once, last.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// Reads a checkpoint: sizes, layers and the hash of every expert tensor. May take minutes.
using ModelLoader = std::function<absl::StatusOr<ModelFacts>(const std::string& checkpoint)>;

struct DriverOptions {
  CoordinatorOptions coordinator;
  std::string placement = "contiguous";           // a row of placement/registry.h
  std::size_t queue_max = 4096;                   // events waiting; beyond it calls are refused
  Duration tick = std::chrono::milliseconds(50);  // how often time alone is looked at
};

class Driver {
 public:
  struct Parts {
    std::unique_ptr<StateStore> store;
    ModelLoader load_model;
    Clock* clock = nullptr;  // these three outlive the driver
    Rng* rng = nullptr;
    Logger* logger = nullptr;
    OnceSet* once = nullptr;  // what this process has said; outlives the driver; null: its own
  };
  using ApplyCallback = std::function<void(absl::StatusOr<DeploymentView>)>;
  using SessionCallback = std::function<void(absl::StatusOr<SessionGrant>)>;
  using StatusCallback = std::function<void(absl::Status)>;

  // Reads the store and starts the threads. Errors: kUnavailable and kDataLoss (STORE_WRITE) of
  // the store; kInvalidArgument (BAD_CONFIG) for an unknown placement policy.
  static absl::StatusOr<std::unique_ptr<Driver>> Create(DriverOptions options, Parts parts);
  // As Shutdown(1 s).
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // `sink` is used until OnWorkerStreamClosed has returned. Too many streams are refused through
  // Close. Errors: kUnavailable (COORDINATOR_LOST) after Shutdown.
  absl::StatusOr<StreamId> OpenWorkerStream(WorkerStreamSink* sink);
  // Messages of one stream, in order. Errors: kResourceExhausted (NO_CREDITS): end the stream, the
  // worker comes back.
  absl::Status OnWorkerMessage(StreamId stream, WorkerMessage message);
  // Also after Close. When it has returned, the sink is not called any more.
  void OnWorkerStreamClosed(StreamId stream);

  // Answers with the deployment as it is once it is stored, or as it would be (`dry_run`); the
  // epoch comes later. Errors: kInvalidArgument (BAD_CONFIG); kDataLoss (CHECKPOINT);
  // kUnavailable (STORE_WRITE; NOT_READY while another apply of that name runs).
  void ApplyDeployment(DeploymentSpec spec, bool dry_run, ApplyCallback done);

  // Errors: kNotFound (UNKNOWN_MODEL), kInvalidArgument (BAD_REQUEST, TOO_MANY_TOKENS, BAD_TOP_K),
  // kUnimplemented (UNSUPPORTED), kUnavailable (NOT_READY), kResourceExhausted
  // (TOO_MANY_SESSIONS).
  void OpenSession(OpenSessionRequest order, SessionCallback done);
  // Idempotent: OK for a session that is not known.
  void CloseSession(SessionId session, StatusCallback done);

  // `sink` is used until StopWatch has returned. What the coordinator refuses comes through
  // OnClosed: kNotFound (UNKNOWN_MODEL, UNKNOWN_SESSION), kFailedPrecondition (STALE_EPOCH).
  absl::StatusOr<WatchId> Watch(WatchRequest order, PlanUpdateSink* sink);
  // Also after OnClosed. When it has returned, the sink is not called any more.
  void StopWatch(WatchId watch);

  // Takes as long as one step of the coordinator.
  [[nodiscard]] CoordinatorView View() const;
  // Evaluates `done` on a view now and after each step of the coordinator, until it is true or
  // `timeout` has passed. Returns the last view. `done` runs under the coordinator's lock and must
  // not call the driver. Must not be called from a callback, which would block the driver thread.
  CoordinatorView WaitForView(absl::FunctionRef<bool(const CoordinatorView&)> done,
                              Duration timeout) const;

  // Closes every stream and watch, answers every callback (kUnavailable, COORDINATOR_LOST) and
  // ends the threads; store writes that were asked for are finished. False when a model load still
  // runs after `deadline`: it is left to end by itself, and a process that cannot wait for it must
  // leave by quick_exit. May be called again, to wait longer.
  bool Shutdown(Duration deadline);

 private:
  class Impl;
  explicit Driver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
