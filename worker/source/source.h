// The participant in its SOURCE role: opens sessions and runs their steps. Thread-safe.
//
//   Source::Submit -> StepRunner::Submit -> ...        (p2p: P2pRunner -> StepEngine -> the frame)
//
// progress_mutex_: its holder drives the transport and calls the runners. A thread that waits for
// its step takes the mutex and does that work itself, so that a step costs no hand-over between
// threads; the Source's own thread drives only while no caller waits, which keeps idle sessions
// following their epochs, and steps going on that a device works on. No thread sleeps while it
// holds the mutex, and every sleep is bounded. While a large step is sent or answered its thread
// gives the mutex up after every piece of work, so that steps of other sessions go between. turn_
// lets those get it: whoever waits for progress_mutex_ holds turn_, and the others queue up for
// that first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/source/doorbell.h"
#include "worker/source/plan_watch.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_runner.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct SourceOptions {
  // Opens sessions and watches their plans; outlives the Source. nullptr: sessions are opened by
  // the gateway, which also follows the plans.
  SessionChannel* coordinator = nullptr;
  // Driven by the Source; the owner of each of its links is the FrameSink of that link. nullptr
  // when no runner has links.
  std::unique_ptr<Transport> transport;
  RunnerFactory make_runner;
  const Clock* clock = nullptr;  // outlives the Source
  // Bound of every sleep while a link is open: a receiver cannot know that something is
  // outstanding.
  Duration sleep_max = std::chrono::milliseconds(5);
};

class Source {
 public:
  using SessionRef = std::uint64_t;  // names an open session; never reused

  static std::unique_ptr<Source> Create(SourceOptions options);
  // Steps in flight fail. No other call may be in progress.
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Blocks until steps can be submitted, at most `timeout`. Where the coordinator chose a group
  // that turns out not to work here, opens the session again over p2p. Errors: those of the
  // coordinator's OpenSession and of the runner's Start and Poll; when the time is over,
  // kUnavailable with the last obstacle (p2p: NOT_READY).
  absl::StatusOr<SessionRef> Open(const OpenSessionRequest& request, Duration timeout);
  // Steps in flight fail (SESSION_CLOSED), and so does whoever waits for one. This call and every
  // later one fails with kFailedPrecondition (SESSION_CLOSED) for a session that is closed.
  absl::Status Close(SessionRef session, Duration timeout);

  // As StepRunner::Submit. The request's memory stays the caller's until Wait has returned. Where
  // the runner says kUnavailable and the coordinator does not know the session any more, the
  // coordinator's answer, which is final: kFailedPrecondition (STALE_EPOCH) or kNotFound
  // (UNKNOWN_MODEL).
  absl::StatusOr<StepTicket> Submit(SessionRef session, const StepRequest& request);
  // Whether Wait would return at once. Makes progress, but does not wait.
  absl::StatusOr<bool> IsDone(SessionRef session, const StepTicket& ticket);
  // Blocks until the step is done, which its deadline bounds, and takes its result.
  absl::Status Wait(SessionRef session, const StepTicket& ticket);
  // Blocks until Wait would return at once for one of `tickets`, and returns its index; the first
  // of several. nullopt: `interrupt` is true. Who sets it calls Interrupt.
  absl::StatusOr<std::optional<std::size_t>> WaitAny(SessionRef session,
                                                     std::span<const StepTicket> tickets,
                                                     const std::atomic<bool>& interrupt);
  // WaitAny looks at `interrupt` again. Does not block.
  void Interrupt() { Wake(); }

  // Runs `work` on the session's graphs. Errors: kUnimplemented (UNSUPPORTED) for a session without
  // such; those of `work`.
  absl::Status UseGraphs(SessionRef session, absl::FunctionRef<absl::Status(StepGraphs&)> work);

  // As StepRunner::epoch.
  absl::StatusOr<Epoch> EpochOf(SessionRef session);
  // The runner's status and whether plans arrive. Copies the plan.
  absl::StatusOr<RunnerStatus> Status(SessionRef session);
  [[nodiscard]] TransportStats transport_stats();

 private:
  class LinkSink;
  class ProgressLock;
  struct Session {
    SessionId id;
    std::unique_ptr<StepRunner> runner = nullptr;
    // nullptr without a coordinator; uses no runner by itself
    std::unique_ptr<PlanWatch> watch = nullptr;
    RunnerProgress polled;  // what the last Poll found
  };

  explicit Source(SourceOptions options);
  absl::StatusOr<SessionGrant> AskForGrant(const OpenSessionRequest& request, Duration timeout);
  absl::StatusOr<SessionRef> OpenGranted(const SessionGrant& grant, TimePoint until,
                                         Duration timeout);
  absl::Status CloseAtCoordinator(SessionId session, Duration timeout);
  void Run();  // the Source's own thread
  void Wake();
  void WakeForRunner();  // from any thread

  Session* Find(SessionRef session) SY_REQUIRES(progress_mutex_);
  absl::Status StartAndConnect(SessionRef session, TimePoint until) SY_REQUIRES(progress_mutex_);
  bool PollAll(TimePoint now) SY_REQUIRES(progress_mutex_);
  // Steps go on by a device's events.
  bool AwaitsDevice() SY_REQUIRES(progress_mutex_);
  bool PollSession(Session& session, TimePoint now) SY_REQUIRES(progress_mutex_);
  // Drives until `finished` or `until`, without the mutex while asleep.
  template <typename Finished>
  void Drive(TimePoint until, Finished finished) SY_REQUIRES(progress_mutex_);
  // Polls the session while it puts work off, and lets others have the mutex in between. nullptr:
  // it was closed.
  Session* WorkOn(SessionRef session) SY_REQUIRES(progress_mutex_);
  // Lets another thread have the mutex, if one waits for it.
  void GiveWay() SY_REQUIRES(progress_mutex_);
  // Sleeps without the mutex, if nothing has come since the last Progress.
  void Sleep(TimePoint now, TimePoint until) SY_REQUIRES(progress_mutex_);

  SourceOptions options_;
  std::unique_ptr<LinkSink> link_sink_;
  Doorbell doorbell_;  // what threads sleep on without a transport
  Mutex turn_;
  Mutex progress_mutex_;
  std::unordered_map<SessionRef, Session> sessions_ SY_GUARDED_BY(progress_mutex_);
  SessionRef last_session_ SY_GUARDED_BY(progress_mutex_) = 0;
  std::uint32_t waiters_ SY_GUARDED_BY(progress_mutex_) = 0;
  bool stopping_ SY_GUARDED_BY(progress_mutex_) = false;
  // Steps await a device, and no caller drives: its events are for the own thread. A state change
  // to true finds that thread in its wait for stop_, or driving.
  std::atomic<bool> follows_device_{false};
  // When a caller last stopped driving.
  TimePoint last_driven_ SY_GUARDED_BY(progress_mutex_){};

  CondVar stop_;
  std::thread thread_;
};

}  // namespace switchyard
