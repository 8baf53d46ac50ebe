#include "worker/collective/expert/group_service.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"
#include "worker/collective/expert/hosted_rank.h"
#include "worker/collective/group_codecs.h"
#include "worker/collective/group_spec.h"
#include "worker/collective/shared_log.h"
#include "worker/expert/attach_grant.h"

namespace switchyard {

// One group in one epoch's forming. `exchange`, `codecs` and `facts` are constant; the rest has a
// lock of its own, because the follower's thread asks while the service's lock may be held.
class GroupService::Group final : public FollowedGroup {
 public:
  Group(GroupService* service, const JoinRequest& first, const CollectiveGroup& facts,
        GroupCodecs codecs, std::unique_ptr<Exchange> exchange, std::int32_t rank)
      : service_(service),
        deployment_(first.attach.deployment),
        facts_(facts),
        codecs_(std::move(codecs)),
        exchange_(std::move(exchange)),
        rank_(rank),
        sources_(facts.source_ranks.size()) {
    in_step.store(first.group.in_step);
    source_epoch.store(first.attach.epoch.value & LoggedStep::kEpochMask);
  }

  struct Source {
    GroupSink* sink = nullptr;  // null: not there
    SessionId session;
    std::string key;
    std::vector<Epoch> bound;
    bool has_given_keys = false;
  };

  [[nodiscard]] Exchange& exchange() override { return *exchange_; }
  absl::StatusOr<Experts> ExpertsOf(const LoggedStep& step) override;
  void OnFailed(const absl::Status& why) override { service_->OnFailed(this, why); }
  [[nodiscard]] Duration patience() const override { return patience_; }
  // Before the follower has the group.
  void SetPatience(Duration patience) { patience_ = patience; }

  [[nodiscard]] const CollectiveGroup& facts() const { return facts_; }
  [[nodiscard]] const std::string& deployment() const { return deployment_; }
  [[nodiscard]] std::int32_t rank() const { return rank_; }

  // Under the service's lock.
  bool formed = false;     // the keys are taken
  bool announced = false;  // its log is chosen: the sources' keys are sent, or the keys taken
  std::uint32_t taken = StepLog::kNoGroup;  // its number, on the first worker
  std::vector<std::string> logs;            // of the other workers, on the first

  // Under the service's lock; the lock of sources_ besides, where the follower reads.
  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }
  template <typename Change>
  void ChangeSource(std::size_t source, Change change) {
    const MutexLock lock(mutex_);
    change(&sources_[source]);
  }

 private:
  GroupService* const service_;
  const std::string deployment_;
  const CollectiveGroup facts_;
  const GroupCodecs codecs_;
  const std::unique_ptr<Exchange> exchange_;
  const std::int32_t rank_;
  Duration patience_{};
  Mutex mutex_;
  std::vector<Source> sources_;
};

// The epoch is one that some source of the group still binds.
absl::StatusOr<FollowedGroup::Experts> GroupService::Group::ExpertsOf(const LoggedStep& step) {
  absl::Status last = MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
      absl::StrFormat("worker %s: a step of a group names an epoch of %s that no source binds",
                      service_->options_.worker_id, deployment_));
  const MutexLock lock(mutex_);
  for (const Source& source : sources_) {
    for (const Epoch epoch : source.bound) {
      if (!step.Is(epoch)) continue;
      auto runtime = service_->options_.experts->Bound(source.session, deployment_, epoch);
      if (!runtime.ok()) {
        last = runtime.status();
        continue;
      }
      const LayerRuntime* const layer = (*runtime)->FindLayer(step.layer);
      if (layer != nullptr && layer->table != nullptr) {
        // All groups of a worker run on one stream, so that one thread counts.
        return Experts{
            .table = std::shared_ptr<const ExpertTable>(*runtime, layer->table.get()),
            .rows = layer->load == nullptr ? nullptr : layer->load->Counters(LoadLane::kGroups),
            .codecs = codecs_.Of(step.layer)};
      }
      return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer,
                       absl::StrFormat("epoch %d of %s has no MoE layer %d here", epoch.value,
                                       deployment_, step.layer.value),
                       {{"layer", absl::StrCat(step.layer.value)}});
    }
  }
  return last;
}

GroupService::GroupService(Options options) : options_(std::move(options)) {}

GroupService::~GroupService() { Stop(); }

absl::StatusOr<std::shared_ptr<const EpochRuntime>> GroupService::BindFirst(
    const JoinRequest& request) {
  const AttachRequest& attach = request.attach;
  const OwnBinding binding{.deployment = attach.deployment,
                           .session = attach.session,
                           .epoch = attach.epoch,
                           .hash = attach.hash,
                           .step_deadline = attach.step_deadline};
  SY_ASSIGN_OR_RETURN(auto runtime, options_.experts->CommittedRuntime(binding));
  SY_RETURN_IF_ERROR(CheckGrant(request, *runtime, options_.worker_id));
  SY_RETURN_IF_ERROR(options_.experts->Bind(binding));
  return runtime;
}

void GroupService::Unbind(SessionId session, Epoch epoch) {
  bool has_session = false;
  for (const auto& [key, group] : groups_) {
    for (const Group::Source& source : group->sources()) {
      if (source.session != session) continue;
      has_session = true;
      if (std::find(source.bound.begin(), source.bound.end(), epoch) != source.bound.end()) return;
    }
  }
  options_.experts->Release(session, epoch);
  if (!has_session) options_.experts->Close(session);
}

absl::StatusOr<std::shared_ptr<GroupService::Group>> GroupService::FindOrMake(
    const JoinRequest& request, const EpochRuntime& runtime) {
  SY_ASSIGN_OR_RETURN(const CollectiveGroup facts,
                      ResolveCollective(runtime.plan, {.phase = request.attach.phase,
                                                       .mode = request.attach.mode,
                                                       .source = request.source,
                                                       .max_tokens = request.attach.max_tokens,
                                                       .sources = request.group.sources,
                                                       .hosts = request.group.hosts,
                                                       .combine_dtype = request.combine_dtype}));
  if (request.group.source < 0 || request.group.source >= request.group.sources) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
        absl::StrFormat("source %d of %d", request.group.source, request.group.sources));
  }
  if (facts.HasRankOf(request.group.source) == request.key.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrFormat("worker %s: a source has a key unless it shares the rank of a "
                                     "worker of the plan",
                                     options_.worker_id),
                     {{"field", "OpenGroupRequest.key"}});
  }
  const GroupKey key{request.group.id, request.attach.epoch};
  const auto at = groups_.find(key);
  if (at != groups_.end()) {
    const Group& group = *at->second;
    const auto source = static_cast<std::size_t>(request.group.source);
    if (group.facts() != facts) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                       absl::StrFormat("worker %s: source %d means another group than those before "
                                       "it; open all their sessions alike",
                                       options_.worker_id, request.group.source));
    }
    if (group.sources()[source].sink == nullptr && !group.announced) return at->second;
    // Its attempt of before may not have ended here yet.
    return MakeError(
        absl::StatusCode::kUnavailable, Reason::kNotReady,
        absl::StrFormat("worker %s: source %d has joined the group already; try again, "
                        "unless two engines have this number",
                        options_.worker_id, request.group.source));
  }
  if (groups_.size() >= options_.groups_max) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                     absl::StrFormat("worker %s is in %d groups; close some", options_.worker_id,
                                     groups_.size()));
  }
  const std::int32_t rank = runtime.self.value;
  SY_ASSIGN_OR_RETURN(GroupCodecs codecs, GroupCodecs::Make(*options_.device, facts));
  SY_ASSIGN_OR_RETURN(auto exchange, options_.device->MakeExchange(SpecOf(facts), rank));
  if (!exchange->CountInto(&counts_.exchange)) counts_.has_rows.store(false);
  auto group =
      std::make_shared<Group>(this, request, facts, std::move(codecs), std::move(exchange), rank);
  groups_.emplace(key, group);
  return group;
}

absl::StatusOr<std::pair<GroupService::MemberId, JoinAnswer>> GroupService::Join(
    const JoinRequest& request, GroupSink* sink) {
  const MutexLock lock(mutex_);
  if (stopping_) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     absl::StrCat("worker ", options_.worker_id, " is about to end"));
  }
  SY_ASSIGN_OR_RETURN(const auto runtime, BindFirst(request));
  auto found = FindOrMake(request, *runtime);
  if (!found.ok()) {
    Unbind(request.attach.session, request.attach.epoch);
    return found.status();
  }
  const auto source = static_cast<std::size_t>(request.group.source);
  (*found)->ChangeSource(source, [&](Group::Source* of) {
    *of = {.sink = sink,
           .session = request.attach.session,
           .key = request.key,
           .bound = {request.attach.epoch}};
  });
  (*found)->logs.insert((*found)->logs.end(), request.logs.begin(), request.logs.end());
  const MemberId member = ++last_member_;
  members_.emplace(member, Member{.group = *found, .source = source});
  return std::pair(member, JoinAnswer{.key = (*found)->exchange().key(),
                                      .log = FollowsForGroups() ? follower_->log().key() : ""});
}

bool GroupService::FollowsForGroups() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& entry) { return entry.second->announced; });
}

absl::Status GroupService::Start(std::unique_ptr<SharedLog> log) {
  SY_ASSIGN_OR_RETURN(
      follower_, LogFollower::Start(
                     {.device = options_.device.get(), .spin = options_.spin, .counts = &counts_},
                     std::move(log)));
  return absl::OkStatus();
}

absl::Status GroupService::ChooseLog(const std::vector<std::string>& logs, Former* former) {
  std::set<std::uint64_t> ids;
  if (FollowsForGroups()) ids.insert(follower_->log().id());
  for (const std::string& log : logs) {
    SY_ASSIGN_OR_RETURN(const std::uint64_t id, SharedLog::IdOf(log));
    ids.insert(id);
  }
  if (ids.size() > 1) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
        absl::StrCat("worker ", options_.worker_id,
                     ": the workers of this group are in groups that were formed apart, and each "
                     "follows the steps of those; close the sessions of one of them, or use "
                     "binding p2p (--transport auto)"),
        {{"worker", options_.worker_id}});
  }
  if (!logs.empty()) return Follow(logs.front(), former);
  if (follower_ != nullptr) return absl::OkStatus();
  SY_ASSIGN_OR_RETURN(auto log, SharedLog::Make(options_.ring_dir, options_.rng));
  return Start(std::move(log));
}

absl::Status GroupService::Follow(const std::string& log_key, Former* former) {
  SY_ASSIGN_OR_RETURN(const std::uint64_t id, SharedLog::IdOf(log_key));
  if (follower_ != nullptr && follower_->log().id() == id) return absl::OkStatus();
  if (FollowsForGroups()) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                     absl::StrCat("worker ", options_.worker_id,
                                  " has begun to follow the steps of another group; form this one "
                                  "again"));
  }
  SY_ASSIGN_OR_RETURN(auto log, SharedLog::Open(log_key, options_.ring_dir));
  SY_RETURN_IF_ERROR(log->Offer(options_.ring_dir, options_.rng));
  former->follower = std::move(follower_);
  return Start(std::move(log));
}

absl::StatusOr<std::shared_ptr<GroupService::Group>> GroupService::Find(MemberId member) {
  const auto at = members_.find(member);
  if (at != members_.end()) return at->second.group;
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("worker ", options_.worker_id, ": the group has ended"),
                   {{"worker", options_.worker_id}});
}

absl::Status GroupService::Announce(MemberId member) {
  Former former;  // before the lock, hence destroyed after it
  const MutexLock lock(mutex_);
  SY_ASSIGN_OR_RETURN(const auto group, Find(member));
  const auto& sources = group->sources();
  const bool all = std::all_of(sources.begin(), sources.end(),
                               [](const Group::Source& source) { return source.sink != nullptr; });
  if (group->rank() != 0 || !all || group->announced) return absl::OkStatus();
  SY_RETURN_IF_ERROR(ChooseLog(group->logs, &former));
  SourceKeys keys;
  for (const Group::Source& source : sources) {
    if (!source.key.empty()) keys.keys.push_back(source.key);
  }
  keys.log = follower_->log().key();
  keys.group = follower_->TakeNumber();
  if (keys.group == StepLog::kNoGroup) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                     absl::StrCat("worker ", options_.worker_id,
                                  ": no number is free for another group; close some sessions"));
  }
  group->taken = keys.group;
  group->announced = true;
  for (const Group::Source& source : sources) source.sink->OnSourceKeys(keys);
  return absl::OkStatus();
}

absl::Status GroupService::TakeKeys(MemberId member, const GroupKeys& keys) {
  Former former;  // before the lock, hence destroyed after it
  const MutexLock lock(mutex_);
  SY_ASSIGN_OR_RETURN(const auto group, Find(member));
  if (!group->formed) SY_RETURN_IF_ERROR(Form(group, keys, &former));
  const std::size_t source = members_.at(member).source;
  group->ChangeSource(source, [](Group::Source* of) { of->has_given_keys = true; });
  const auto& sources = group->sources();
  if (group->rank() != 0) {
    sources[source].sink->OnReady();
  } else if (std::all_of(sources.begin(), sources.end(),
                         [](const Group::Source& of) { return of.has_given_keys; })) {
    for (const Group::Source& of : sources) of.sink->OnReady();
  }
  return absl::OkStatus();
}

absl::Status GroupService::Form(const std::shared_ptr<Group>& group, const GroupKeys& keys,
                                Former* former) {
  if (keys.group >= LoggedStep::kGroupsMax) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("a group's number is below ", LoggedStep::kGroupsMax));
  }
  SY_RETURN_IF_ERROR(Follow(keys.log, former));
  // The number is what the source says. That of a group of before may not be free yet.
  if (follower_->Has(keys.group)) {
    return MakeError(
        absl::StatusCode::kUnavailable, Reason::kNotReady,
        absl::StrFormat("another group has number %d here; form the group again", keys.group));
  }
  Duration patience{};
  for (const Group::Source& source : group->sources()) {
    patience = std::max(patience, options_.experts->StepDeadlineOf(source.session));
  }
  SY_RETURN_IF_ERROR(group->exchange().Join(keys.keys, patience));
  group->SetPatience(patience);
  group->formed = true;
  group->announced = true;
  // From the first step on, though it looks for its rank later.
  const std::vector<std::int32_t>& ranks = group->facts().source_ranks;
  group->has_source.store(std::find(ranks.begin(), ranks.end(), group->rank()) != ranks.end());
  follower_->Add(keys.group, group);
  return absl::OkStatus();
}

absl::Status GroupService::Bind(MemberId member, const BindRequest& request) {
  const MutexLock lock(mutex_);
  SY_ASSIGN_OR_RETURN(const auto group, Find(member));
  const std::size_t source = members_.at(member).source;
  SY_RETURN_IF_ERROR(options_.experts->Bind({.deployment = group->deployment(),
                                             .session = group->sources()[source].session,
                                             .epoch = request.epoch,
                                             .hash = request.hash,
                                             .step_deadline = request.step_deadline}));
  group->ChangeSource(source, [&](Group::Source* of) {
    if (std::find(of->bound.begin(), of->bound.end(), request.epoch) == of->bound.end()) {
      of->bound.push_back(request.epoch);
    }
  });
  return absl::OkStatus();
}

void GroupService::Release(MemberId member, const ReleaseRequest& request) {
  const MutexLock lock(mutex_);
  const auto at = members_.find(member);
  if (at == members_.end()) return;
  Group& group = *at->second.group;
  group.ChangeSource(at->second.source,
                     [&](Group::Source* of) { std::erase(of->bound, request.epoch); });
  Unbind(group.sources()[at->second.source].session, request.epoch);
}

void GroupService::Leave(MemberId member) {
  const MutexLock lock(mutex_);
  const auto at = members_.find(member);
  if (at == members_.end()) return;
  const std::shared_ptr<Group> group = at->second.group;
  // The one that leaves does not want to hear of it.
  group->ChangeSource(at->second.source, [](Group::Source* of) { of->sink = nullptr; });
  End(group, MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                       absl::StrFormat("source %d of the group has left", at->second.source)));
}

void GroupService::OnFailed(const Group* group, const absl::Status& why) {
  const MutexLock lock(mutex_);
  const auto at = std::find_if(groups_.begin(), groups_.end(),
                               [&](const auto& entry) { return entry.second.get() == group; });
  if (at != groups_.end()) End(std::shared_ptr<Group>(at->second), why);
}

void GroupService::End(const std::shared_ptr<Group>& group, const absl::Status& why) {
  // Steps that have begun need not wait for ranks that have heard of the end.
  const CollectiveGroup& facts = group->facts();
  for (std::int32_t r = 0; r < facts.ranks(); ++r) group->exchange().Lose(r);
  if (follower_ != nullptr) {
    follower_->Remove(group.get());
    if (group->taken != StepLog::kNoGroup) follower_->GiveNumber(group->taken);
  }
  std::erase_if(groups_, [&](const auto& entry) { return entry.second == group; });
  std::erase_if(members_, [&](const auto& entry) { return entry.second.group == group; });
  for (const Group::Source& source : group->sources()) {
    for (const Epoch epoch : source.bound) Unbind(source.session, epoch);
    if (source.bound.empty()) Unbind(source.session, Epoch{});
    if (source.sink != nullptr) source.sink->OnGroupEnded(why);
  }
}

std::size_t GroupService::groups_open() const {
  const MutexLock lock(mutex_);
  return groups_.size();
}

absl::StatusOr<std::shared_ptr<SourceRank>> GroupService::RankOf(const GroupId& id, Epoch epoch,
                                                                 std::function<void()> wake) {
  const MutexLock lock(mutex_);
  const auto at = groups_.find({id, epoch});
  const std::uint32_t number = at == groups_.end() || !at->second->formed
                                   ? StepLog::kNoGroup
                                   : follower_->NumberOf(at->second.get());
  if (number == StepLog::kNoGroup) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     absl::StrFormat("worker %s of this process has not formed the group, or has "
                                     "ended it",
                                     options_.worker_id),
                     {{"worker", options_.worker_id}});
  }
  return std::make_shared<HostedRank>(HostedRank::Options{.service = shared_from_this(),
                                                          .device = options_.device,
                                                          .follower = follower_,
                                                          .group = at->second,
                                                          .number = number,
                                                          .wake = std::move(wake)});
}

void GroupService::Stop() {
  Former former;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    while (!groups_.empty()) {
      End(std::shared_ptr<Group>(groups_.begin()->second),
          MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                    absl::StrCat("worker ", options_.worker_id, " ends"),
                    {{"worker", options_.worker_id}}));
    }
    former.follower = std::move(follower_);
  }
}

}  // namespace switchyard
