#include "worker/agent/agent.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/amount_text.h"
#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "core/base/status_macros.h"
#include "core/plan.h"

namespace switchyard {
namespace {

// Epochs of one deployment: one serves while the next one loads. A third would need memory for the
// weights of three.
constexpr std::ptrdiff_t kResidentMax = 2;
constexpr Duration kEveryLine = std::chrono::seconds(10);

EpochKey KeyOf(const Plan& plan) { return {plan.deployment, plan.epoch}; }

ErrorMetadata Ids(const EpochKey& key) {
  return {{"deployment", key.deployment}, {"epoch", absl::StrCat(key.epoch.value)}};
}

absl::Status Stale(const EpochKey& key, absl::string_view what) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
      absl::StrFormat("deployment %s, epoch %d: %s", key.deployment, key.epoch.value, what),
      Ids(key));
}

}  // namespace

Agent::Agent(AgentOptions options, Rng* rng, TimePoint now)
    : options_(std::move(options)), rng_(rng), now_(now), dial_at_(now), unregistered_since_(now) {}

std::vector<AgentEffect> Agent::Step(const AgentEvent& event, TimePoint now) {
  now_ = now;
  if (!finished_) std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(out_, {});
}

TimePoint Agent::NextDeadline() const {
  TimePoint next = TimePoint::max();
  if (finished_) return next;
  if (dial_.value == 0) next = std::min(next, dial_at_);
  if (dial_.value != 0 && !registered_) {
    next = std::min(next, dialled_at_ + options_.register_timeout);
  }
  if (registered_) next = std::min(next, next_heartbeat_);
  if (leaving_since_) next = std::min(next, LeaveBy());
  return next;
}

// Without a stream no Goodbye can arrive, so a worker that is alone need not wait as long as
// another one. But a coordinator may be away for a while, when its Pod moves to another machine in
// the same upgrade; steps go on without it, and must not fail for it.
TimePoint Agent::LeaveBy() const {
  const TimePoint last = *leaving_since_ + options_.leave_timeout + options_.leave_alone_timeout;
  if (registered_) {
    return std::min(last, std::max(*leaving_since_, registered_since_) + options_.leave_timeout);
  }
  const TimePoint alone = std::max(*leaving_since_, unregistered_since_);
  if (in_use_) return std::min(last, alone + options_.leave_alone_timeout);
  const bool serves = std::ranges::any_of(epochs_, [](const auto& epoch) {
    return epoch.second.state == State::kCommitted || epoch.second.state == State::kRetiring;
  });
  return serves ? std::min(last, alone + options_.leave_unused_timeout) : alone;
}

void Agent::On(const AgentTick& event) {
  in_use_ = event.in_use;
  if (leaving_since_ && now_ >= LeaveBy()) {
    out_.push_back(AgentReport{
        LogLevel::kWarn,
        absl::StrFormat("%s; leaving anyway%s",
                        registered_ ? "the experts of this worker do not serve elsewhere in time"
                                    : "the coordinator is unreachable",
                        Lost())});
    return Finish(absl::OkStatus());
  }
  if (dial_.value == 0 && now_ >= dial_at_) {
    dial_ = DialId{++last_dial_};
    dialled_at_ = now_;
    out_.push_back(DialChannel{dial_});
  } else if (dial_.value != 0 && !registered_ && now_ >= dialled_at_ + options_.register_timeout) {
    const DialId given_up = dial_;
    out_.push_back(HangUpChannel{given_up});
    // The stream ends without a callback once it is hung up, so this is the only ChannelDown.
    On(ChannelDown{given_up,
                   MakeError(absl::StatusCode::kDeadlineExceeded, Reason::kCoordinatorLost,
                             "the coordinator did not answer Register in time")});
  }
  if (now_ >= next_line_) LogStaging(event.heartbeat);
  if (registered_ && now_ >= next_heartbeat_) {
    Send(event.heartbeat);
    // A quarter of the lease: two lost heartbeats in a row do not cost the membership.
    next_heartbeat_ = now_ + lease_ttl_ / 4;
  }
}

void Agent::On(const ChannelUp& event) {
  if (event.dial != dial_) return;  // A late event of a connection that was given up.
  up_ = true;
  Send(Register{options_.worker_id, options_.incarnation, options_.endpoint, options_.capabilities,
                Resident(), HeldKeys(), options_.secret, options_.pool, /*checks_opener=*/true,
                options_.release});
}

// The newest epoch first, because a coordinator keeps only a few keys of each deployment.
std::vector<DeploymentKeys> Agent::HeldKeys() const {
  std::vector<DeploymentKeys> all;
  for (auto it = epochs_.rbegin(); it != epochs_.rend(); ++it) {
    const auto& [key, held] = *it;
    if (held.state != State::kCommitted && held.state != State::kRetiring) continue;
    // Epochs of one deployment lie side by side.
    if (all.empty() || all.back().deployment != key.deployment) all.push_back({key.deployment, {}});
    for (const GrantKey& grant_key : held.grant_keys) AddGrantKey(grant_key, &all.back().keys);
  }
  return all;
}

void Agent::On(const ChannelDown& event) {
  if (event.dial != dial_) return;
  last_stream_end_ = event.why;
  if (registered_) {
    unregistered_since_ = now_;
    failed_dials_ = 0;
  }
  dial_ = {};
  up_ = registered_ = false;
  // The coordinator will refuse this process every time, so another dial is pointless: either a
  // newer process has its name, or its registration is invalid.
  if (ReasonOf(event.why) == Reason::kIncarnation ||
      event.why.code() == absl::StatusCode::kInvalidArgument) {
    return Finish(WithScope(event.why, FailureScope::kWorker));
  }
  out_.push_back(AgentReport{LogLevel::kWarn, absl::StrCat("the coordinator's stream ended: ",
                                                           event.why.message(), "; reconnecting")});
  ScheduleDial();
}

void Agent::ScheduleDial() {
  Duration delay = options_.redial_first;
  for (int i = 0; i < failed_dials_ && delay < options_.redial_last; ++i) delay *= 2;
  delay = std::min(delay, options_.redial_last);
  ++failed_dials_;
  // The random factor keeps the workers of a restarted coordinator from dialing at the same moment.
  const double part = 0.5 + 0.5 * rng_->Uniform();
  dial_at_ = now_ + Duration(static_cast<Duration::rep>(part * static_cast<double>(delay.count())));
}

void Agent::On(const ChannelMessage& event) {
  if (event.dial != dial_ || !up_) return;
  std::visit([this](const auto& m) { OnMessage(m); }, event.message);
}

void Agent::OnMessage(const Registered& message) {
  if (!registered_) {
    out_.push_back(AgentReport{LogLevel::kInfo, "registered at the coordinator"});
    registered_since_ = now_;
  }
  registered_ = true;
  failed_dials_ = 0;
  // A lease of zero would make NextDeadline return the present forever.
  lease_ttl_ = std::max(message.lease_ttl, Duration(std::chrono::milliseconds(4)));
  next_heartbeat_ = now_ + lease_ttl_ / 4;
  if (message.tracing != tracing_) {
    tracing_ = message.tracing;
    out_.push_back(UseTracing{tracing_});
  }
  // An epoch that became ready after Register was sent is missing from Register's list, and its ack
  // was discarded because the stream was not registered yet.
  for (const auto& [key, held] : epochs_) {
    if (held.state != State::kPrepared) continue;
    Send(PrepareAck{key.deployment, key.epoch, held.nonce, held.hash});
  }
  if (leaving_since_) Send(Leave{});
}

absl::Status Agent::CheckPrepare(const Prepare& prepare) const {
  const EpochKey key = KeyOf(prepare.plan);
  if (HashOf(prepare.plan) != prepare.hash) {
    return MakeError(absl::StatusCode::kDataLoss, Reason::kBadConfig,
                     absl::StrFormat("deployment %s, epoch %d: the plan does not match its hash; "
                                     "it was damaged in transit, or the coordinator runs another "
                                     "version",
                                     key.deployment, key.epoch.value),
                     Ids(key));
  }
  SY_RETURN_IF_ERROR(ValidatePlan(prepare.plan));
  // The incarnation must match as well: a plan made for this worker's previous process assumes
  // epochs that this process does not hold.
  const std::optional<WorkerOrdinal> mine = prepare.plan.FindWorker(options_.worker_id);
  if (!mine || prepare.plan.workers[static_cast<std::size_t>(mine->value)].incarnation !=
                   options_.incarnation) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation,
                     absl::StrFormat("deployment %s, epoch %d: the plan does not include this "
                                     "process",
                                     key.deployment, key.epoch.value),
                     Ids(key));
  }
  return absl::OkStatus();
}

bool Agent::AnswerKnown(const EpochKey& key, const Prepare& prepare) {
  Held* held = Find(key);
  if (held == nullptr) return false;
  if (held->hash != prepare.hash) {
    Nack(prepare, Stale(key, "this worker holds a different plan with this epoch number"));
    return true;
  }
  held->nonce = prepare.nonce;
  switch (held->state) {
    case State::kStaging:
      break;  // EpochStaged sends the answer, with the new nonce.
    case State::kFailed:
      Nack(prepare, held->error);
      break;
    case State::kPrepared:
    case State::kCommitted:
      Send(PrepareAck{key.deployment, key.epoch, prepare.nonce, prepare.hash});
      break;
    case State::kRetiring:
      Nack(prepare, Stale(key, "this worker is retiring it"));
      break;
  }
  return true;
}

void Agent::OnMessage(const Prepare& message) {
  const EpochKey key = KeyOf(message.plan);
  if (const absl::Status status = CheckPrepare(message); !status.ok()) {
    return Nack(message, status);
  }
  if (AnswerKnown(key, message)) return;
  Epoch& highest = highest_[key.deployment];
  if (key.epoch <= highest) {
    return Nack(message, Stale(key, absl::StrFormat("this worker has already seen epoch %d; "
                                                    "prepare a later one",
                                                    highest.value)));
  }
  // A failed epoch is kept only to answer repeated PREPAREs. A new epoch shows that the coordinator
  // has received that answer.
  std::erase_if(epochs_, [&key](const auto& entry) {
    return entry.first.deployment == key.deployment && entry.second.state == State::kFailed;
  });
  const std::ptrdiff_t resident =
      std::count_if(epochs_.begin(), epochs_.end(),
                    [&key](const auto& entry) { return entry.first.deployment == key.deployment; });
  if (resident >= kResidentMax) {
    return Nack(message,
                MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                          absl::StrFormat("deployment %s, epoch %d: this worker already holds two "
                                          "epochs; retire one first",
                                          key.deployment, key.epoch.value),
                          Ids(key)));
  }
  highest = key.epoch;
  Held& held = epochs_[key];
  held.hash = message.hash;
  held.nonce = message.nonce;
  held.grant_keys = message.grant_keys;
  Say(LogLevel::kInfo, key,
      absl::StrFormat("deployment %s: staging epoch %d", key.deployment, key.epoch.value));
  out_.push_back(StageEpoch{message});
}

void Agent::On(const EpochStaged& event) {
  Held* held = Find(event.key);
  // Aborted while it was staged: the epoch is gone and the coordinator expects no answer.
  if (held == nullptr || held->state != State::kStaging) return;
  if (event.status.ok()) {
    held->state = State::kPrepared;
    Send(PrepareAck{event.key.deployment, event.key.epoch, held->nonce, held->hash});
    return;
  }
  held->state = State::kFailed;
  held->error = event.status;
  // The coordinator hears of it as well, but whoever looks at this machine looks here.
  Say(LogLevel::kError, event.key,
      absl::StrFormat("deployment %s: staging epoch %d failed: %s", event.key.deployment,
                      event.key.epoch.value, event.status.message()),
      event.status);
  Send(PrepareNack{event.key.deployment, event.key.epoch, held->nonce, event.status});
}

void Agent::OnMessage(const Commit& message) {
  const EpochKey key{message.deployment, message.epoch};
  Held* held = Find(key);
  const bool known = held != nullptr && held->hash == message.hash;
  if (known && held->state == State::kPrepared) {
    held->state = State::kCommitted;
    out_.push_back(ActivateEpoch{key});
    Say(LogLevel::kInfo, key,
        absl::StrFormat("deployment %s: epoch %d is committed", key.deployment, key.epoch.value));
  }
  if (known && held->state == State::kCommitted) {
    return Send(CommitAck{key.deployment, key.epoch, message.hash});
  }
  Send(CommitNack{key.deployment, key.epoch,
                  Stale(key, "this worker has not prepared it with the hash in COMMIT")});
}

void Agent::OnMessage(const Abort& message) {
  const EpochKey key{message.deployment, message.epoch};
  Held* held = Find(key);
  if (held == nullptr) return;
  // Sources may already be bound to a committed epoch. Only RETIRE, which waits for them, ends it.
  if (held->state == State::kCommitted || held->state == State::kRetiring) {
    Say(LogLevel::kError, key,
        absl::StrFormat("deployment %s: ignored ABORT of epoch %d because it is committed",
                        key.deployment, key.epoch.value));
    return;
  }
  Drop(key);
}

void Agent::OnMessage(const Retire& message) {
  const EpochKey key{message.deployment, message.epoch};
  Held* held = Find(key);
  const bool serves = held != nullptr && held->state == State::kCommitted;
  if (serves) {
    held->state = State::kRetiring;
    out_.push_back(RetireEpoch{key});
    Say(LogLevel::kDebug, key,
        absl::StrFormat("deployment %s: epoch %d retires", key.deployment, key.epoch.value));
  }
  if (held != nullptr && held->state == State::kRetiring) {
    // Also for a repetition, which is sent when the epoch's memory is needed sooner.
    if (message.within > Duration::zero()) out_.push_back(ShortenRetire{key, message.within});
    return;  // EpochUnbound acknowledges it.
  }
  // An epoch that is unknown here is acknowledged as well, so that the coordinator stops repeating
  // RETIRE to a worker that has restarted.
  if (held != nullptr) Drop(key);
  Send(RetireAck{key.deployment, key.epoch});
}

void Agent::On(const EpochUnbound& event) {
  Held* held = Find(event.key);
  if (held == nullptr || held->state != State::kRetiring) return;
  Drop(event.key);
  Send(RetireAck{event.key.deployment, event.key.epoch});
}

void Agent::OnMessage(const Goodbye& /*message*/) { Finish(absl::OkStatus()); }

void Agent::On(const LeaveRequested& /*event*/) {
  if (leaving_since_) return;
  leaving_since_ = now_;
  out_.push_back(AgentReport{
      LogLevel::kInfo,
      absl::StrFormat(
          "leaving when the experts of this worker serve elsewhere, in %d s at most, and %d s more "
          "while the coordinator is away",
          std::chrono::duration_cast<std::chrono::seconds>(options_.leave_timeout).count(),
          std::chrono::duration_cast<std::chrono::seconds>(options_.leave_alone_timeout).count())});
  Send(Leave{});
  // There is no time to wait out the delay of earlier dials.
  if (dial_.value == 0) dial_at_ = now_;
  failed_dials_ = 0;
}

// Steps that use these fail until the coordinator has made a plan without this worker.
std::string Agent::Lost() const {
  std::string lost;
  for (const auto& [key, held] : epochs_) {
    if (held.state != State::kCommitted) continue;
    absl::StrAppend(&lost, lost.empty() ? " with epoch " : ", ", key.epoch.value, " of deployment ",
                    key.deployment);
  }
  return lost.empty() ? ""
                      : absl::StrCat(lost, ": steps that use its experts fail until the next plan");
}

void Agent::LogStaging(const Heartbeat& heartbeat) {
  bool loads = false;
  for (const StagingReport& report : heartbeat.staging) {
    if (report.experts_done >= report.experts) continue;
    loads = true;
    // The first line comes when it is known that it takes its time.
    if (next_line_ == TimePoint{}) continue;
    Say(LogLevel::kInfo, {report.deployment, report.epoch},
        absl::StrFormat("deployment %s: staging epoch %d: %d of %d experts, %s", report.deployment,
                        report.epoch.value, report.experts_done, report.experts,
                        ShareText(report.bytes_done, report.bytes)));
  }
  next_line_ = loads ? now_ + kEveryLine : TimePoint{};
}

void Agent::Say(LogLevel level, const EpochKey& key, std::string text, const absl::Status& why) {
  AgentReport report{level, std::move(text), {{"deployment", key.deployment}}};
  report.fields.emplace_back("epoch", key.epoch.value);
  if (!why.ok()) report.fields.emplace_back("reason", std::string(ReasonName(ReasonOf(why))));
  // Ids only, such as the tensor and its file; the text has them for people.
  for (const auto& [name, value] : MetadataOf(why)) {
    if (name != "deployment" && name != "epoch" && !value.empty()) {
      report.fields.emplace_back(name, value);
    }
  }
  out_.push_back(std::move(report));
}

// Removes the epoch here and in the runtime. The stager has already freed an epoch that failed.
void Agent::Drop(const EpochKey& key) {
  const bool runtime_has_it = epochs_.at(key).state != State::kFailed;
  Say(LogLevel::kDebug, key,
      absl::StrFormat("deployment %s: epoch %d is dropped", key.deployment, key.epoch.value));
  epochs_.erase(key);
  if (runtime_has_it) out_.push_back(DropEpoch{key});
}

void Agent::Nack(const Prepare& prepare, const absl::Status& error) {
  Say(LogLevel::kWarn, KeyOf(prepare.plan), absl::StrCat("refused PREPARE: ", error.message()),
      error);
  Send(PrepareNack{prepare.plan.deployment, prepare.plan.epoch, prepare.nonce, error});
}

// Nothing is queued for the next stream: Register reports the current state, and the coordinator
// repeats every request that is still unanswered. A queued ack could be stale by then.
void Agent::Send(WorkerMessage message) {
  const bool allowed = registered_ || (up_ && std::holds_alternative<Register>(message));
  if (allowed) out_.push_back(SendToCoordinator{dial_, std::move(message)});
}

void Agent::Finish(absl::Status why) {
  if (dial_.value != 0) out_.push_back(HangUpChannel{dial_});
  dial_ = {};
  up_ = registered_ = false;
  finished_ = true;
  out_.push_back(AgentFinished{std::move(why)});
}

Agent::Held* Agent::Find(const EpochKey& key) {
  const auto it = epochs_.find(key);
  return it == epochs_.end() ? nullptr : &it->second;
}

std::vector<ResidentEpoch> Agent::Resident() const {
  std::vector<ResidentEpoch> resident;
  for (const auto& [key, held] : epochs_) {
    if (held.state == State::kStaging || held.state == State::kFailed) continue;
    resident.push_back({key.deployment, key.epoch, held.hash, held.state != State::kPrepared});
  }
  return resident;
}

}  // namespace switchyard
