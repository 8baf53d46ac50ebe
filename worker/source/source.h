// The participant in its SOURCE role: opens sessions and runs their steps. Thread-safe.
//
// One transport serves all sessions of a Source, and a mutex (the seat) decides who drives it. A
// thread that waits for its step takes the seat and does the transport's work itself, so that a
// step costs no hand-over between threads; the library's own thread drives only while nobody waits,
// which keeps idle sessions following their epochs. Nobody sleeps on the seat, and every sleep is
// bounded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "worker/source/p2p/session.h"

namespace switchyard {

struct SourceOptions {
  SessionChannel* channel = nullptr;  // outlives the Source
  std::unique_ptr<Transport> transport;
  std::unique_ptr<DeviceBackend> device;  // codecs and sums
  const Clock* clock = nullptr;           // outlives the Source
  Rng* rng = nullptr;                     // outlives the Source; used under the seat
  Incarnation incarnation;
  OwnExperts* own_experts = nullptr;  // gateway
  std::string own_worker_id;          // gateway
  // Bound of every sleep while a link is open: a receiver cannot know that something is
  // outstanding.
  Duration sleep_max = std::chrono::milliseconds(5);
};

class Source {
 public:
  using SessionRef = std::uint64_t;  // names an open session; never reused

  static std::unique_ptr<Source> Create(SourceOptions options);
  ~Source();

  // Blocks until every worker is attached, at most `timeout`. Errors as OpenSession at the
  // coordinator and Attach at the workers; kUnavailable (NOT_READY) with the last cause at the
  // time-out.
  absl::StatusOr<SessionRef> Open(const OpenSessionRequest& order, TransportChoice transport,
                                  Duration timeout);
  // Steps in flight fail (SESSION_CLOSED). kNotFound (UNKNOWN_SESSION).
  absl::Status Close(SessionRef session, Duration timeout);

  // Dispatch: see StepEngine::Submit. The request's memory stays the caller's until Combine.
  absl::StatusOr<StepTicket> Dispatch(SessionRef session, const StepRequest& request);
  // Whether Combine would return at once.
  absl::StatusOr<bool> Done(SessionRef session, const StepTicket& ticket);
  // Waits for the step and uses the ticket up; bounded by the step's deadline.
  absl::Status Combine(SessionRef session, const StepTicket& ticket);

  // A copy of the grant, with the plan that is bound now.
  absl::StatusOr<SessionGrant> Grant(SessionRef session);
  absl::StatusOr<SourceSessionStatus> Status(SessionRef session);
  [[nodiscard]] TransportStats transport_stats();

 private:
  class Sink;

  explicit Source(SourceOptions options);
  void Run();                               // the library's own thread
  bool PollAll(TimePoint now);              // seat held
  SourceSession* Find(SessionRef session);  // seat held
  // Drives until `finished` or `until`, giving the seat up while asleep.
  template <typename Finished>
  void Drive(std::unique_lock<std::mutex>& seat, TimePoint until, Finished finished);
  [[nodiscard]] Duration SleepFor(TimePoint now, TimePoint until) const;

  SourceOptions options_;
  std::unique_ptr<Sink> sink_;
  std::mutex seat_;
  // Guarded by seat_.
  std::unordered_map<SessionRef, std::unique_ptr<SourceSession>> sessions_;
  SessionRef last_session_ = 0;
  std::uint32_t waiters_ = 0;
  bool stopping_ = false;
  TimePoint last_driven_{};  // when a caller last gave the transport up
  std::condition_variable stop_;
  std::thread thread_;
};

}  // namespace switchyard
