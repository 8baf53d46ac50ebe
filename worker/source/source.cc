#include "worker/source/source.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"

namespace switchyard {
namespace {

// With no link open only a wake can bring anything, so this bounds nothing but a bug.
constexpr Duration kIdleSleep = std::chrono::milliseconds(100);
// A caller that waits for step after step drives the transport; the Source's thread takes over when
// none has for this long, so that the two do not both wake for each message.
constexpr Duration kHandOver = std::chrono::milliseconds(20);
// A caller that only begins a step or asks for it does this much of the work: as many chunks as
// eight workers have credits for. Answers that come meanwhile free further ones.
constexpr int kPiecesMax = 64;

absl::Status ClosedSession() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                   "the session is closed; open another", {});
}

// Another attempt at the group would end alike. Memory of another host may look like a bad key; a
// lack of memory passes.
bool IsNoGroup(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

// Holds progress_mutex_ as long as it lives. All threads take it in this way, also after a sleep:
// one that took it at once could keep those that wait from ever getting it.
class SY_THREAD_ANNOTATION_(scoped_lockable) Source::ProgressLock {
 public:
  explicit ProgressLock(Source& source) SY_ACQUIRE(source.progress_mutex_)
      : mutex_(source.progress_mutex_) {
    const MutexLock turn(source.turn_);
    mutex_.Lock();
  }
  ~ProgressLock() SY_RELEASE() {
    if (held_) mutex_.Unlock();
  }
  ProgressLock(const ProgressLock&) = delete;
  ProgressLock& operator=(const ProgressLock&) = delete;

  // At most once.
  void Unlock() SY_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Passes what arrives on a link to the runner that made it.
class Source::LinkSink final : public FrameSink {
 public:
  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override {
    static_cast<FrameSink*>(link.owner())->OnFrame(link, raw, header, payload);
  }
  void OnLinkDown(Link& link, const absl::Status& why) override {
    static_cast<FrameSink*>(link.owner())->OnLinkDown(link, why);
  }
};

std::unique_ptr<Source> Source::Create(SourceOptions options) {
  std::unique_ptr<Source> source(new Source(std::move(options)));
  source->thread_ = std::thread([raw = source.get()] { raw->Run(); });
  return source;
}

Source::Source(SourceOptions options)
    : options_(std::move(options)), link_sink_(std::make_unique<LinkSink>()) {}

Source::~Source() {
  {
    const ProgressLock progress(*this);
    stopping_ = true;
    // Closed before the thread ends, so that it finds nothing to carry on.
    for (auto& [ref, session] : sessions_) session.runner->Close(options_.clock->Now());
  }
  stop_.NotifyAll();
  Wake();
  if (thread_.joinable()) thread_.join();
  // Before the transport, whose links they hold.
  const ProgressLock progress(*this);
  sessions_.clear();
}

absl::StatusOr<SessionGrant> Source::AskForGrant(const OpenSessionRequest& request,
                                                 Duration timeout) {
  if (options_.coordinator != nullptr) return options_.coordinator->OpenSession(request, timeout);
  // The gateway grants, when the runner starts.
  SessionGrant grant;
  grant.request = request;
  grant.binding = Binding::kGateway;
  return grant;
}

absl::Status Source::CloseAtCoordinator(SessionId session, Duration timeout) {
  if (options_.coordinator == nullptr) return absl::OkStatus();
  return options_.coordinator->CloseSession(session, timeout);
}

absl::StatusOr<Source::SessionRef> Source::Open(const OpenSessionRequest& request,
                                                Duration timeout) {
  const TimePoint until = options_.clock->Now() + timeout;
  SY_ASSIGN_OR_RETURN(const SessionGrant grant, AskForGrant(request, timeout));
  absl::StatusOr<SessionRef> opened = OpenGranted(grant, until, timeout);
  const bool chosen =
      request.binding == BindingChoice::kAuto && grant.binding == Binding::kCollective;
  if (opened.ok() || !chosen || !IsNoGroup(opened.status())) return opened;
  // Its other sources have to hear of it, too: they would wait for this one.
  OpenSessionRequest again = request;
  again.group.obstacle = CutUtf8(opened.status().message(), kGroupObstacleMax);
  const Duration left = until - options_.clock->Now();
  if (left <= Duration::zero()) return opened;
  SY_ASSIGN_OR_RETURN(const SessionGrant other, AskForGrant(again, left));
  return OpenGranted(other, until, left);
}

absl::StatusOr<Source::SessionRef> Source::OpenGranted(const SessionGrant& grant, TimePoint until,
                                                       Duration timeout) {
  absl::StatusOr<std::unique_ptr<StepRunner>> runner =
      options_.make_runner(grant, [this] { WakeForRunner(); });
  if (!runner.ok()) {
    CloseAtCoordinator(grant.session, timeout).IgnoreError();
    return runner.status();
  }
  ProgressLock progress(*this);
  const SessionRef ref = ++last_session_;
  Session& session = sessions_[ref];
  session.id = grant.session;
  session.runner = *std::move(runner);
  // Before the runner starts: a plan that is committed meanwhile must not be missed.
  if (options_.coordinator != nullptr) {
    session.watch = std::make_unique<PlanWatch>(options_.coordinator, grant, [this] { Wake(); });
  }
  const absl::Status ready = StartAndConnect(ref, until);
  if (ready.ok()) return ref;
  session.runner->Close(options_.clock->Now());
  auto failed = sessions_.extract(ref);
  progress.Unlock();
  // Without the mutex: all of this may take its time, and other sessions go on.
  failed = {};
  CloseAtCoordinator(grant.session, timeout).IgnoreError();
  return ready;
}

absl::Status Source::StartAndConnect(SessionRef ref, TimePoint until) {
  // References to elements of the map stay valid while other threads open and close sessions, and
  // only this thread knows `ref`.
  Session& session = *Find(ref);
  const TimePoint now = options_.clock->Now();
  SY_RETURN_IF_ERROR(session.runner->Start(now));
  PollSession(session, now);
  Drive(until, [&] { return session.polled.state != RunnerProgress::State::kOpening; });
  return session.polled.state == RunnerProgress::State::kReady ? absl::OkStatus()
                                                               : session.polled.why;
}

absl::Status Source::Close(SessionRef ref, Duration timeout) {
  decltype(sessions_)::node_type closed;
  {
    const ProgressLock progress(*this);
    Session* session = Find(ref);
    if (session == nullptr) return ClosedSession();
    session->runner->Close(options_.clock->Now());
    closed = sessions_.extract(ref);
  }
  // Threads that wait for its steps look again, and find it gone.
  Wake();
  // Without the mutex, because its stream, threads and memory take time to end.
  const SessionId id = closed.mapped().id;
  closed = {};
  return CloseAtCoordinator(id, timeout);
}

absl::StatusOr<StepTicket> Source::Submit(SessionRef ref, const StepRequest& request) {
  const ProgressLock progress(*this);
  Session* session = Find(ref);
  if (session == nullptr) return ClosedSession();
  // Before the runner begins: its device may be done before it returns.
  follows_device_.store(waiters_ == 0);
  absl::StatusOr<StepTicket> ticket = session->runner->Submit(request, options_.clock->Now());
  follows_device_.store(waiters_ == 0 && AwaitsDevice());
  // The caller may look for its step much later.
  if (ticket.ok()) session = WorkOn(ref);
  if (!absl::IsUnavailable(ticket.status()) || session->watch == nullptr) return ticket;
  // The plan that would mend it will never be heard of, so a retry is no use.
  if (!session->watch->refused().ok()) return session->watch->refused();
  return ticket;
}

absl::StatusOr<bool> Source::IsDone(SessionRef ref, const StepTicket& ticket) {
  const ProgressLock progress(*this);
  // A caller may only poll and never wait: then no other thread drives its steps in time.
  PollAll(options_.clock->Now());
  Session* session = WorkOn(ref);
  if (session == nullptr) return ClosedSession();
  return session->runner->IsDone(ticket);
}

Source::Session* Source::WorkOn(SessionRef ref) {
  Session* session = Find(ref);
  for (int pieces = 0; session != nullptr && session->runner->put_off(); ++pieces) {
    if (pieces == kPiecesMax) {
      Wake();  // Whoever sleeps goes on with it.
      break;
    }
    GiveWay();
    session = Find(ref);
    // Another thread's step may have ended.
    if (session != nullptr && PollSession(*session, options_.clock->Now()) && waiters_ > 0) Wake();
  }
  return session;
}

absl::Status Source::Wait(SessionRef ref, const StepTicket& ticket) {
  const ProgressLock progress(*this);
  absl::StatusOr<bool> done = false;
  // The step ends by its own deadline: no other bound is needed here.
  Drive(TimePoint::max(), [&] {
    progress_mutex_.AssertHeld();
    // Looked up each time: another thread may have closed the session while this one slept.
    Session* session = Find(ref);
    done = session == nullptr ? absl::StatusOr<bool>(ClosedSession())
                              : session->runner->IsDone(ticket);
    return !done.ok() || *done;
  });
  if (!done.ok()) return done.status();
  return Find(ref)->runner->Take(ticket, options_.clock->Now());
}

absl::StatusOr<std::optional<std::size_t>> Source::WaitAny(SessionRef ref,
                                                           std::span<const StepTicket> tickets,
                                                           const std::atomic<bool>& interrupt) {
  const ProgressLock progress(*this);
  absl::Status status;
  std::optional<std::size_t> first;
  Drive(TimePoint::max(), [&] {
    progress_mutex_.AssertHeld();
    Session* session = Find(ref);
    if (session == nullptr) status = ClosedSession();
    for (std::size_t i = 0; status.ok() && !first && i < tickets.size(); ++i) {
      const absl::StatusOr<bool> done = session->runner->IsDone(tickets[i]);
      status = done.status();
      if (status.ok() && *done) first = i;
    }
    return !status.ok() || first.has_value() || interrupt.load();
  });
  if (!status.ok()) return status;
  if (stopping_ && !first) return ClosedSession();
  return first;
}

absl::Status Source::UseGraphs(SessionRef ref, absl::FunctionRef<absl::Status(StepGraphs&)> work) {
  const ProgressLock progress(*this);
  Session* const session = Find(ref);
  if (session == nullptr) return ClosedSession();
  StepGraphs* const graphs = session->runner->graphs();
  if (graphs == nullptr) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "only sessions with binding collective have graphs");
  }
  // As in Submit: a launch goes on by its device.
  follows_device_.store(waiters_ == 0);
  const absl::Status done = work(*graphs);
  follows_device_.store(waiters_ == 0 && AwaitsDevice());
  return done;
}

absl::StatusOr<Epoch> Source::EpochOf(SessionRef ref) {
  const ProgressLock progress(*this);
  const Session* session = Find(ref);
  if (session == nullptr) return ClosedSession();
  return session->runner->epoch();
}

absl::StatusOr<RunnerStatus> Source::Status(SessionRef ref) {
  const ProgressLock progress(*this);
  Session* session = Find(ref);
  if (session == nullptr) return ClosedSession();
  RunnerStatus status = session->runner->Status();
  status.watching = session->watch != nullptr && session->watch->watching();
  return status;
}

TransportStats Source::transport_stats() {
  const ProgressLock progress(*this);
  return options_.transport == nullptr ? TransportStats{} : options_.transport->stats();
}

Source::Session* Source::Find(SessionRef ref) {
  const auto it = sessions_.find(ref);
  return it == sessions_.end() ? nullptr : &it->second;
}

bool Source::PollSession(Session& session, TimePoint now) {
  const bool news = session.watch != nullptr && session.watch->Poll(*session.runner, now);
  session.polled = session.runner->Poll(now);
  return news || session.polled.worked;
}

bool Source::PollAll(TimePoint now) {
  bool worked = options_.transport != nullptr && options_.transport->Progress(*link_sink_);
  for (auto& [ref, session] : sessions_) worked |= PollSession(session, now);
  // A frame ends the sleep of one thread only, and it may be another one's step that it finished.
  if (worked && waiters_ > 1) Wake();
  return worked;
}

// Most callers wait for their step by the time that its device has done something. For the others
// the own thread takes over, which no earlier wake has reached: it sleeps elsewhere.
void Source::WakeForRunner() {
  Wake();
  if (follows_device_.load()) stop_.NotifyAll();
}

void Source::Wake() {
  if (options_.transport != nullptr) {
    options_.transport->Wake();
  } else {
    doorbell_.Wake();
  }
}

void Source::Sleep(TimePoint now, TimePoint until) {
  // Armed before the mutex is given up: what comes in between then ends the sleep.
  Transport* const transport = options_.transport.get();
  if (transport != nullptr ? !transport->Arm() : !doorbell_.Arm()) {
    // A transport that polls refuses again and again, while other callers wait for the mutex.
    GiveWay();
    return;
  }
  // Each session's last Poll still holds: nothing worked, and the mutex was not released since.
  bool has_links = false;
  TimePoint wake_at = until;
  for (const auto& [ref, session] : sessions_) {
    has_links |= session.polled.has_links;
    wake_at = std::min(wake_at, session.polled.wake_at);
    if (session.watch != nullptr) wake_at = std::min(wake_at, session.watch->wake_at());
  }
  const Duration bound = has_links ? options_.sleep_max : kIdleSleep;
  const Duration sleep = wake_at <= now ? Duration::zero() : std::min(bound, wake_at - now);
  progress_mutex_.Unlock();
  if (transport != nullptr) {
    transport->Wait(sleep);
  } else {
    doorbell_.Wait(sleep);
  }
  const MutexLock turn(turn_);
  progress_mutex_.Lock();
}

void Source::GiveWay() {
  if (turn_.TryLock()) {
    turn_.Unlock();
    return;
  }
  progress_mutex_.Unlock();
  // Until the one that waits has got it.
  const MutexLock turn(turn_);
  progress_mutex_.Lock();
}

template <typename Finished>
void Source::Drive(TimePoint until, Finished finished) {
  ++waiters_;
  follows_device_.store(false);
  while (!finished() && !stopping_) {
    const TimePoint now = options_.clock->Now();
    if (now >= until) break;
    const bool worked = PollAll(now);
    if (finished()) break;
    if (worked) {
      GiveWay();
    } else {
      Sleep(now, until);
    }
  }
  --waiters_;
  last_driven_ = options_.clock->Now();
  if (waiters_ > 0 || !AwaitsDevice()) return;
  // Steps are left behind whose device may have said something that nobody has looked at.
  follows_device_.store(true);
  stop_.NotifyAll();
}

bool Source::AwaitsDevice() {
  for (const auto& [ref, session] : sessions_) {
    if (session.runner->awaits_device()) return true;
  }
  return false;
}

void Source::Run() {
  const ProgressLock progress(*this);
  while (!stopping_) {
    const TimePoint now = options_.clock->Now();
    if (waiters_ > 0 || (now < last_driven_ + kHandOver && !AwaitsDevice())) {
      // Time passes for this thread, and only the destructor cuts it short: a caller that stops
      // driving does not notify, since that would cost a wake-up for every step.
      stop_.WaitUntil(progress_mutex_, std::chrono::steady_clock::now() + options_.sleep_max);
      continue;
    }
    if (PollAll(now)) {
      GiveWay();
    } else {
      Sleep(now, TimePoint::max());
    }
  }
}

}  // namespace switchyard
