#include "worker/source/source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// With no link open nothing can come but events, which wake the sleeper.
constexpr Duration kIdleSleep = std::chrono::milliseconds(100);
// A caller that waits for step after step drives the transport; the library's thread takes over
// when none has for this long, so that the two do not both wake for each message.
constexpr Duration kHandOver = std::chrono::milliseconds(20);

absl::Status UnknownSession() {
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession,
                   "no such session; it was closed or never opened here", {});
}

}  // namespace

class Source::Sink final : public FrameSink {
 public:
  explicit Sink(const Clock* clock) : clock_(clock) {}
  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override {
    auto* attachment = static_cast<Attachment*>(link.owner());
    attachment->session->OnFrame(*attachment, raw, header, payload, clock_->Now());
  }
  void OnLinkDown(Link& link, const absl::Status& why) override {
    auto* attachment = static_cast<Attachment*>(link.owner());
    attachment->session->OnLinkDown(*attachment, why, clock_->Now());
  }

 private:
  const Clock* clock_;
};

std::unique_ptr<Source> Source::Create(SourceOptions options) {
  std::unique_ptr<Source> source(new Source(std::move(options)));
  source->thread_ = std::thread([raw = source.get()] { raw->Run(); });
  return source;
}

Source::Source(SourceOptions options)
    : options_(std::move(options)), sink_(std::make_unique<Sink>(options_.clock)) {}

Source::~Source() {
  {
    const std::lock_guard<std::mutex> lock(seat_);
    stopping_ = true;
    for (auto& [ref, session] : sessions_) session->Close(options_.clock->Now());
  }
  stop_.notify_all();
  options_.transport->Wake();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard<std::mutex> lock(seat_);
  sessions_.clear();
}

absl::StatusOr<Source::SessionRef> Source::Open(const OpenSessionRequest& order,
                                                TransportChoice transport, Duration timeout) {
  const TimePoint until = options_.clock->Now() + timeout;
  SY_ASSIGN_OR_RETURN(SessionGrant grant, options_.channel->OpenSession(order, timeout));
  const SessionId id = grant.session;
  SourceSessionOptions options;
  options.channel = options_.channel;
  options.transport = options_.transport.get();
  options.device = options_.device.get();
  options.clock = options_.clock;
  options.rng = options_.rng;
  options.wake = [this] { options_.transport->Wake(); };
  options.own_experts = options_.own_experts;
  options.own_worker_id = options_.own_worker_id;
  options.incarnation = options_.incarnation;
  options.grant = std::move(grant);
  options.transport_choice = transport;
  auto made = std::make_unique<SourceSession>(std::move(options));
  SourceSession* session = made.get();

  std::unique_lock<std::mutex> seat(seat_);
  const SessionRef ref = ++last_session_;
  sessions_[ref] = std::move(made);
  absl::Status ready = session->Start(options_.clock->Now());
  if (ready.ok()) {
    Drive(seat, until, [&] {
      ready = session->ready();
      return ready.code() != absl::StatusCode::kUnavailable;
    });
  }
  if (ready.ok()) return ref;
  session->Close(options_.clock->Now());
  std::unique_ptr<SourceSession> failed = std::move(sessions_[ref]);
  sessions_.erase(ref);
  failed.reset();
  seat.unlock();
  options_.channel->CloseSession(id, timeout).IgnoreError();
  return ready;
}

absl::Status Source::Close(SessionRef ref, Duration timeout) {
  SessionId id;
  {
    const std::lock_guard<std::mutex> seat(seat_);
    const auto it = sessions_.find(ref);
    if (it == sessions_.end()) return UnknownSession();
    id = it->second->grant().session;
    it->second->Close(options_.clock->Now());
    sessions_.erase(it);
  }
  // Waiters on its steps find it gone.
  options_.transport->Wake();
  return options_.channel->CloseSession(id, timeout);
}

absl::StatusOr<StepTicket> Source::Dispatch(SessionRef ref, const StepRequest& request) {
  const std::lock_guard<std::mutex> seat(seat_);
  SourceSession* session = Find(ref);
  if (session == nullptr) return UnknownSession();
  return session->Submit(request, options_.clock->Now());
}

absl::StatusOr<bool> Source::Done(SessionRef ref, const StepTicket& ticket) {
  const std::lock_guard<std::mutex> seat(seat_);
  PollAll(options_.clock->Now());
  SourceSession* session = Find(ref);
  if (session == nullptr) return UnknownSession();
  return session->Done(ticket);
}

absl::Status Source::Combine(SessionRef ref, const StepTicket& ticket) {
  std::unique_lock<std::mutex> seat(seat_);
  absl::StatusOr<bool> done = false;
  // The step ends by its own deadline: no other bound is needed here.
  Drive(seat, TimePoint::max(), [&] {
    SourceSession* session = Find(ref);
    done = session == nullptr ? absl::StatusOr<bool>(UnknownSession()) : session->Done(ticket);
    return !done.ok() || *done;
  });
  if (!done.ok()) return done.status();
  return Find(ref)->Take(ticket, options_.clock->Now());
}

absl::StatusOr<SessionGrant> Source::Grant(SessionRef ref) {
  const std::lock_guard<std::mutex> seat(seat_);
  SourceSession* session = Find(ref);
  if (session == nullptr) return UnknownSession();
  SessionGrant grant = session->grant();
  if (const BoundPlan* binding = session->binding()) {
    grant.plan = binding->plan;
    grant.hash = binding->hash;
  }
  return grant;
}

absl::StatusOr<SourceSessionStatus> Source::Status(SessionRef ref) {
  const std::lock_guard<std::mutex> seat(seat_);
  SourceSession* session = Find(ref);
  if (session == nullptr) return UnknownSession();
  return session->Status();
}

TransportStats Source::transport_stats() {
  const std::lock_guard<std::mutex> seat(seat_);
  return options_.transport->stats();
}

SourceSession* Source::Find(SessionRef ref) {
  const auto it = sessions_.find(ref);
  return it == sessions_.end() ? nullptr : it->second.get();
}

bool Source::PollAll(TimePoint now) {
  bool worked = options_.transport->Progress(*sink_);
  for (auto& [ref, session] : sessions_) worked |= session->Poll(now);
  // Whoever else waits may be asleep beside what was just delivered.
  if (worked && waiters_ > 1) options_.transport->Wake();
  return worked;
}

Duration Source::SleepFor(TimePoint now, TimePoint until) const {
  bool attached = false;
  TimePoint wake = until;
  for (const auto& [ref, session] : sessions_) {
    attached |= session->attached();
    if (const auto deadline = session->NextDeadline()) wake = std::min(wake, *deadline);
  }
  const Duration bound = attached ? options_.sleep_max : kIdleSleep;
  return wake <= now ? Duration::zero() : std::min(bound, wake - now);
}

template <typename Finished>
void Source::Drive(std::unique_lock<std::mutex>& seat, TimePoint until, Finished finished) {
  ++waiters_;
  while (!finished() && !stopping_) {
    const TimePoint now = options_.clock->Now();
    if (now >= until) break;
    if (PollAll(now) || finished()) continue;
    if (!options_.transport->Arm()) continue;
    const Duration sleep = SleepFor(now, until);
    seat.unlock();
    options_.transport->Wait(sleep);
    seat.lock();
  }
  --waiters_;
  last_driven_ = options_.clock->Now();
}

void Source::Run() {
  std::unique_lock<std::mutex> seat(seat_);
  while (!stopping_) {
    const TimePoint now = options_.clock->Now();
    if (waiters_ > 0 || now < last_driven_ + kHandOver) {
      stop_.wait_for(seat, options_.sleep_max);
      continue;
    }
    if (PollAll(now) || !options_.transport->Arm()) continue;
    const Duration sleep = SleepFor(now, TimePoint::max());
    seat.unlock();
    options_.transport->Wait(sleep);
    seat.lock();
  }
}

}  // namespace switchyard
