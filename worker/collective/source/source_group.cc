#include "worker/collective/source/source_group.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/group_spec.h"

namespace switchyard {
namespace {

TimePoint Now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

}  // namespace

// One worker's answers so far. All of it under the group's mutex, but `stream`, which belongs to
// the forming thread until the group is ready, and then to the group's user.
class SourceGroup::Worker final : public GroupStreamSink {
 public:
  Worker(SourceGroup* group, std::int32_t rank, std::string id)
      : group_(group), rank_(rank), id_(std::move(id)) {}

  void OnJoined(const JoinAnswer& answer) override {
    const MutexLock lock(group_->mutex_);
    key = answer.key;
    log = answer.log;
    group_->Changed();
  }
  void OnSourceKeys(const SourceKeys& keys) override {
    const MutexLock lock(group_->mutex_);
    group_->source_keys_ = keys;
    group_->Changed();
  }
  void OnReady() override {
    const MutexLock lock(group_->mutex_);
    ready = true;
    group_->Changed();
  }
  void OnBound(Epoch epoch, const absl::Status& result) override {
    {
      const MutexLock lock(group_->mutex_);
      bound[epoch] = result;
    }
    group_->options_.wake();
  }
  void OnGroupEnded(const absl::Status& why) override {
    {
      const MutexLock lock(group_->mutex_);
      if (group_->why_.ok()) {
        const std::map<std::string, std::string> metadata = MetadataOf(why);
        // A worker that is ahead of the source's plan, or behind it, means the same soon. With TLS
        // one that has nothing of the deployment yet says so of no one: to it the session is
        // unknown.
        const bool mends = why.ok() || ReasonOf(why) == Reason::kStaleEpoch ||
                           ReasonOf(why) == Reason::kUnknownSession;
        group_->why_ =
            MakeError(mends ? absl::StatusCode::kUnavailable : why.code(),
                      why.ok() ? Reason::kWorkerLost : ReasonOf(why),
                      absl::StrFormat("worker %s ended the group: %s", id_, why.message()),
                      {metadata.begin(), metadata.end()});
      }
      group_->LoseAll(rank_);
      group_->state_ = State::kEnded;
      group_->Changed();
    }
    group_->options_.wake();
  }

  std::string key;  // empty: not joined
  std::string log;  // that it follows; empty: none
  bool ready = false;
  std::map<Epoch, absl::Status> bound;
  std::unique_ptr<GroupStream> stream;

 private:
  SourceGroup* const group_;
  const std::int32_t rank_;
  const std::string id_;
};

SourceGroup::SourceGroup(Options options) : options_(std::move(options)) {
  for (const PlanWorker& worker : options_.grant.plan.workers) {
    const auto rank = static_cast<std::int32_t>(workers_.size());
    workers_.push_back(std::make_unique<Worker>(this, rank, worker.id));
  }
  thread_ = std::thread([this] { Form(); });
}

SourceGroup::~SourceGroup() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    Changed();
  }
  thread_.join();
  // The rank first, whose thread may end the group. The streams call the workers' sinks until they
  // are gone.
  {
    const MutexLock lock(mutex_);
    has_rank_ = false;
  }
  rank_.reset();
  for (const auto& worker : workers_) worker->stream.reset();
}

SourceGroup::State SourceGroup::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

absl::Status SourceGroup::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

void SourceGroup::Changed() { changed_.NotifyAll(); }

void SourceGroup::Form() {
  const absl::Status formed = TryForm();
  {
    const MutexLock lock(mutex_);
    if (formed.ok() && state_ == State::kForming) state_ = State::kReady;
    if (!formed.ok()) {
      state_ = State::kEnded;
      if (why_.ok()) why_ = formed;
    }
  }
  options_.wake();
}

template <typename There>
absl::Status SourceGroup::WaitForAll(TimePoint until, absl::string_view what, There there) {
  const MutexLock lock(mutex_);
  for (;;) {
    if (state_ == State::kEnded) return why_;
    if (stopping_) return absl::CancelledError("the session is closed");
    const auto missing = std::find_if_not(workers_.begin(), workers_.end(),
                                          [&](const auto& worker) { return there(*worker); });
    if (missing == workers_.end()) return absl::OkStatus();
    if (changed_.WaitUntil(mutex_, until)) continue;
    const auto at = static_cast<std::size_t>(missing - workers_.begin());
    return MakeError(
        absl::StatusCode::kUnavailable, Reason::kNotReady,
        absl::StrFormat("worker %s %s in time", options_.grant.plan.workers[at].id, what));
  }
}

absl::Status SourceGroup::CheckHost() const {
  const std::string& host =
      options_.grant.group.hosts.at(static_cast<std::size_t>(options_.grant.group.source));
  if (options_.host != nullptr && options_.host->worker_id() == host) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
      absl::StrFormat("worker %s is named as the host of this source, whose client %s; open the "
                      "client with that worker of its process, or name no host",
                      host,
                      options_.host == nullptr
                          ? "has none"
                          : absl::StrCat("has worker ", options_.host->worker_id())),
      {{"worker", host}});
}

JoinRequest SourceGroup::MakeRequest() const {
  const SessionGrant& grant = options_.grant;
  JoinRequest request;
  request.attach.session = grant.session;
  request.attach.cookie = grant.cookie;
  request.attach.deployment = grant.request.deployment;
  request.attach.phase = grant.request.phase;
  request.attach.mode = grant.request.mode.value_or(DispatchMode::kNormal);
  request.attach.epoch = grant.plan.epoch;
  request.attach.hash = grant.hash;
  request.attach.record_amax = grant.request.record_amax;
  request.attach.step_deadline = grant.request.step_deadline;
  request.attach.max_tokens = grant.request.max_tokens;
  request.attach.signature = grant.signature;
  request.group = grant.group;
  request.source = grant.request.source;
  request.combine_dtype = grant.request.combine_dtype;
  return request;
}

absl::Status SourceGroup::TryForm() {
  const TimePoint until = Now() + options_.timeout;
  const CollectiveGroup& facts = options_.facts;
  const std::int32_t source = options_.grant.group.source;
  JoinRequest request = MakeRequest();
  std::unique_ptr<Exchange> exchange;  // null: the worker of this process has it
  if (facts.HasRankOf(source)) {
    const std::int32_t rank = facts.source_ranks.at(static_cast<std::size_t>(source));
    SY_ASSIGN_OR_RETURN(exchange, options_.device->MakeExchange(SpecOf(facts), rank));
    request.key = exchange->key();
  } else {
    SY_RETURN_IF_ERROR(CheckHost());
  }
  SY_RETURN_IF_ERROR(JoinWorkers(std::move(request), until));
  SY_RETURN_IF_ERROR(WaitForAll(until,
                                "waits for the group's other sources, which have not joined it",
                                [this](const Worker&) { return source_keys_.has_value(); }));
  const GroupKeys keys = KeysOfAll();
  if (exchange != nullptr) SY_RETURN_IF_ERROR(MakeOwnRank(std::move(exchange), keys));
  for (const auto& worker : workers_) worker->stream->SendKeys(keys);
  SY_RETURN_IF_ERROR(WaitForAll(until, "does not make the group's steps",
                                [](const Worker& worker) { return worker.ready; }));
  return rank_ == nullptr ? ShareRank() : absl::OkStatus();
}

GroupKeys SourceGroup::KeysOfAll() const {
  const MutexLock lock(mutex_);
  GroupKeys keys{.keys = {}, .log = source_keys_->log, .group = source_keys_->group};
  for (const auto& worker : workers_) keys.keys.push_back(worker->key);
  keys.keys.insert(keys.keys.end(), source_keys_->keys.begin(), source_keys_->keys.end());
  return keys;
}

absl::Status SourceGroup::MakeOwnRank(std::unique_ptr<Exchange> exchange, const GroupKeys& keys) {
  OwnRank::Options own;
  own.lane = options_.lane;
  own.device = options_.device;
  SY_ASSIGN_OR_RETURN(own.codecs, GroupCodecs::Make(*options_.device, options_.facts));
  SY_RETURN_IF_ERROR(exchange->Join(keys.keys, options_.grant.request.step_deadline));
  own.exchange = std::move(exchange);
  SY_ASSIGN_OR_RETURN(own.log, SharedLog::Open(keys.log, options_.ring_dir));
  own.group = keys.group;
  own.alone = options_.grant.group.sources == 1;
  own.idle_after =
      options_.grant.group.in_step ? options_.grant.request.step_deadline : options_.idle_after;
  own.fail = [this](const absl::Status& why) { Abandon(why); };
  rank_ = std::make_shared<OwnRank>(std::move(own));
  const MutexLock lock(mutex_);
  has_rank_ = true;
  return absl::OkStatus();
}

absl::Status SourceGroup::ShareRank() {
  SY_ASSIGN_OR_RETURN(rank_, options_.host->RankOf(options_.grant.group.id,
                                                   options_.grant.plan.epoch, options_.wake));
  const MutexLock lock(mutex_);
  has_rank_ = true;
  return absl::OkStatus();
}

// The first worker last, which is told what logs the others follow: it chooses the group's.
absl::Status SourceGroup::JoinWorkers(JoinRequest request, TimePoint until) {
  const auto join = [&](std::size_t w) {
    workers_[w]->stream = options_.channel->JoinGroup(options_.grant.plan.workers[w].endpoint,
                                                      request, workers_[w].get());
  };
  for (std::size_t w = 1; w < workers_.size(); ++w) join(w);
  const Worker* const first = workers_.front().get();
  const auto has_joined = [](const Worker& worker) { return !worker.key.empty(); };
  SY_RETURN_IF_ERROR(WaitForAll(until, "has not joined the group", [&](const Worker& worker) {
    return &worker == first || has_joined(worker);
  }));
  {
    const MutexLock lock(mutex_);
    for (const auto& worker : workers_) {
      if (!worker->log.empty()) request.logs.push_back(worker->log);
    }
  }
  join(0);
  return WaitForAll(until, "has not joined the group", has_joined);
}

void SourceGroup::Bind(const BindRequest& request) {
  for (const auto& worker : workers_) worker->stream->Bind(request);
}

absl::StatusOr<bool> SourceGroup::IsBound(Epoch epoch) const {
  const MutexLock lock(mutex_);
  bool all = true;
  for (const auto& worker : workers_) {
    const auto at = worker->bound.find(epoch);
    if (at == worker->bound.end()) {
      all = false;
    } else if (!at->second.ok()) {
      return at->second;
    }
  }
  return all;
}

void SourceGroup::Release(Epoch epoch) {
  for (const auto& worker : workers_) worker->stream->Release({epoch});
}

void SourceGroup::Abandon(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kEnded) return;
    if (why_.ok()) why_ = why;
    LoseAll(options_.facts.source_ranks.at(static_cast<std::size_t>(options_.grant.group.source)));
    state_ = State::kEnded;
    Changed();
  }
  options_.wake();
}

// The group makes no more steps: those that run need not wait until their patience ends.
void SourceGroup::LoseAll(std::int32_t first) {
  if (!has_rank_) return;
  Exchange& exchange = rank_->exchange();
  exchange.Lose(first);
  for (std::int32_t r = 0; r < options_.facts.ranks(); ++r) exchange.Lose(r);
}

absl::Status GroupEnded(const absl::Status& why) {
  const std::map<std::string, std::string> metadata = MetadataOf(why);
  return MakeError(absl::StatusCode::kUnavailable, ReasonOf(why),
                   absl::StrCat("the session's group has ended, and another one is being formed: ",
                                why.message()),
                   {metadata.begin(), metadata.end()});
}

std::uint64_t StepOfFault(const absl::Status& fault) {
  const std::map<std::string, std::string> metadata = MetadataOf(fault);
  const auto at = metadata.find("step");
  std::uint64_t step = 0;
  return at != metadata.end() && absl::SimpleAtoi(at->second, &step) ? step : 0;
}

}  // namespace switchyard
