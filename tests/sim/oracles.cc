#include "tests/sim/oracles.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/plan.h"

namespace switchyard::sim {
namespace {

std::string Show(const EpochKey& key) {
  return absl::StrCat(key.deployment, " epoch ", key.epoch.value);
}

EpochKey KeyOf(const Plan& plan) { return {plan.deployment, plan.epoch}; }

}  // namespace

void Oracles::Fail(const std::string& what) {
  if (!violation_.empty()) return;
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(scheduler_->now().time_since_epoch());
  violation_ = absl::StrFormat("at %d ms: %s", ms.count(), what);
}

StoredDeployment Oracles::Stored(const std::string& deployment) const {
  const auto all = const_cast<MemoryStore*>(disk_)->Load();
  for (const StoredDeployment& stored : all->deployments) {
    if (stored.deployment == deployment) return stored;
  }
  return {};
}

const StoredPlan* Oracles::StoredPlanOf(const StoredDeployment& stored, Epoch epoch) const {
  const auto it = std::find_if(stored.plans.begin(), stored.plans.end(),
                               [epoch](const StoredPlan& plan) { return plan.epoch == epoch; });
  return it == stored.plans.end() ? nullptr : &*it;
}

void Oracles::CoordinatorSends(const Peer& peer, const CoordinatorMessage& message) {
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    CheckPrepare(peer, *prepare);
    told_[peer.incarnation].emplace(KeyOf(prepare->plan), false);
  } else if (const auto* commit = std::get_if<Commit>(&message)) {
    const StoredDeployment stored = Stored(commit->deployment);
    const StoredPlan* plan = StoredPlanOf(stored, commit->epoch);
    Check(plan != nullptr && plan->hash == commit->hash,
          absl::StrCat("I2: COMMIT of ", commit->deployment, " epoch ", commit->epoch.value,
                       " before its plan is on disk"));
    told_[peer.incarnation][{commit->deployment, commit->epoch}] = true;
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    told_[peer.incarnation].erase({abort->deployment, abort->epoch});
  } else if (const auto* retire = std::get_if<Retire>(&message)) {
    Check(Stored(retire->deployment).serving != retire->epoch,
          absl::StrCat("I6: RETIRE of ", retire->deployment, " epoch ", retire->epoch.value,
                       ", which serves"));
  }
}

void Oracles::CheckPrepare(const Peer& peer, const Prepare& prepare) {
  const EpochKey key = KeyOf(prepare.plan);
  const auto [known, first] = attempts_.try_emplace(key, Attempt{prepare.hash, prepare.nonce});
  Check(known->second.hash == prepare.hash && known->second.nonce == prepare.nonce,
        absl::StrCat("I1/I10: ", Show(key), " is prepared a second time"));
  Check(Stored(key.deployment).high_water >= key.epoch,
        absl::StrCat("I10: PREPARE of ", Show(key), " before its number is on disk"));
  const auto ordinal = prepare.plan.FindWorker(peer.id);
  Check(ordinal && prepare.plan.workers[static_cast<std::size_t>(ordinal->value)].incarnation ==
                       peer.incarnation,
        absl::StrCat("I8: PREPARE of ", Show(key), " to a life of ", peer.id,
                     " that is not in its plan"));
  for (const auto& [incarnation, epochs] : told_) {
    const auto others = std::count_if(epochs.begin(), epochs.end(), [&key](const auto& entry) {
      return entry.first.deployment == key.deployment && entry.first.epoch != key.epoch;
    });
    // One that comes back later than the change began is not waited for.
    Check(others <= 1 || (!first && incarnation != peer.incarnation),
          absl::StrCat("I6: PREPARE of ", Show(key), " while somebody holds ", others,
                       " other epochs"));
  }
  if (first) CheckNeeded(prepare.plan);
}

// An epoch that changes nothing, while everybody holds the one that serves, costs a reload for
// nothing.
void Oracles::CheckNeeded(const Plan& plan) {
  const StoredDeployment stored = Stored(plan.deployment);
  const StoredPlan* serving = StoredPlanOf(stored, stored.serving);
  if (serving == nullptr) return;
  Plan same = plan;
  same.epoch = stored.serving;
  if (HashOf(same) != serving->hash) return;
  const EpochKey key{plan.deployment, stored.serving};
  const bool all_hold =
      std::all_of(plan.workers.begin(), plan.workers.end(), [&](const PlanWorker& worker) {
        const auto registered = registered_.find(worker.id);
        return registered != registered_.end() && registered->second == worker.incarnation &&
               told_.contains(worker.incarnation) &&
               activated_.contains({worker.incarnation, key, serving->hash}) &&
               commit_heard_.contains({worker.incarnation, key});
      });
  Check(!all_hold, absl::StrCat("needless: ", Show(KeyOf(plan)), " is the same as ", Show(key),
                                ", which all of its workers hold"));
}

void Oracles::CoordinatorHears(const Peer& peer, const WorkerMessage& message) {
  heard_[peer.id] = scheduler_->now();
  if (const auto* request = std::get_if<Register>(&message)) {
    auto& epochs = told_[peer.incarnation];
    epochs.clear();
    for (const ResidentEpoch& held : request->resident) {
      epochs[{held.deployment, held.epoch}] = held.committed;
    }
    registered_[peer.id] = peer.incarnation;
  } else if (const auto* ack = std::get_if<RetireAck>(&message)) {
    told_[peer.incarnation].erase({ack->deployment, ack->epoch});
  }
}

void Oracles::CoordinatorStarts(TimePoint now) {
  told_.clear();
  registered_.clear();
  heard_.clear();
  listening_since_ = now;
}

void Oracles::CheckAllActive(const Plan& plan, const PlanHash& hash, const std::string& who) {
  for (const PlanWorker& worker : plan.workers) {
    Check(activated_.contains({worker.incarnation, KeyOf(plan), hash}),
          absl::StrCat("I6: ", who, " of ", Show(KeyOf(plan)), " before ", worker.id,
                       " has activated it"));
  }
  Check(HashOf(plan) == hash, absl::StrCat("I1: ", who, " with a hash of another plan"));
  Check(Stored(plan.deployment).serving >= plan.epoch,
        absl::StrCat("I2: ", who, " of ", Show(KeyOf(plan)), " before disk knows that it serves"));
}

void Oracles::CoordinatorGrants(const SessionGrant& grant) {
  CheckAllActive(grant.plan, grant.hash, "a grant");
  for (const PlanWorker& worker : grant.plan.workers) {
    const auto registered = registered_.find(worker.id);
    Check(registered != registered_.end() && registered->second == worker.incarnation,
          absl::StrCat("I8: a grant on a former life of ", worker.id));
  }
}

void Oracles::CoordinatorAnnounces(const PlanUpdate& news) {
  CheckAllActive(news.plan, news.hash, "news");
  Epoch& highest = served_[news.plan.deployment];
  Check(news.plan.epoch >= highest,
        absl::StrCat("I1: news of ", Show(KeyOf(news.plan)), " after epoch ", highest.value));
  highest = std::max(highest, news.plan.epoch);
}

void Oracles::CoordinatorShows(const CoordinatorView& view) {
  constexpr Duration kSlack = std::chrono::milliseconds(200);
  for (const WorkerView& worker : view.workers) {
    const auto heard = heard_.find(worker.id);
    const TimePoint last =
        std::max(heard == heard_.end() ? TimePoint{} : heard->second, listening_since_);
    Check(scheduler_->now() - last <= options_.lease_ttl + kSlack,
          absl::StrCat("worker ", worker.id, " is a member after a lease of silence"));
  }
}

void Oracles::DiskTakes(const StoreWrite& write) {
  const auto* commit = std::get_if<CommitPlan>(&write);
  if (commit == nullptr) return;
  const auto plan = ParsePlan(commit->plan);
  const EpochKey key{commit->deployment, commit->epoch};
  Check(
      plan.ok() && HashOf(*plan) == commit->hash && ValidatePlan(*plan).ok() && KeyOf(*plan) == key,
      absl::StrCat("I5: the plan of ", Show(key), " on disk is not valid"));
  const auto attempt = attempts_.find(key);
  Check(attempt != attempts_.end() && attempt->second.hash == commit->hash,
        absl::StrCat("I1: the plan of ", Show(key), " on disk was never prepared"));
  if (!plan.ok()) return;
  for (const PlanWorker& worker : plan->workers) {
    Check(staged_.contains({worker.incarnation, key, commit->hash}),
          absl::StrCat("I5: ", Show(key), " is on disk and ", worker.id, " has not staged it"));
  }
}

void Oracles::WorkerStages(const Peer& worker, const EpochKey& key, const PlanHash& real_hash) {
  staged_.insert({worker.incarnation, key, real_hash});
}

void Oracles::WorkerHearsCommit(const Peer& worker, const Commit& commit) {
  commit_heard_[{worker.incarnation, {commit.deployment, commit.epoch}}] = commit.hash;
}

void Oracles::WorkerActivates(const Peer& worker, const EpochKey& key, const PlanHash& real_hash,
                              bool staged_whole) {
  const auto commit = commit_heard_.find({worker.incarnation, key});
  Check(commit != commit_heard_.end() && commit->second == real_hash,
        absl::StrCat("I3: ", worker.id, " activates another plan of ", Show(key),
                     " than COMMIT names"));
  Check(staged_whole,
        absl::StrCat("I3: ", worker.id, " activates ", Show(key), " before it is staged"));
  activated_.insert({worker.incarnation, key, real_hash});
}

void Oracles::WorkerBinds(const Peer& worker, const EpochKey& key, const PlanHash& hash) {
  Check(activated_.contains({worker.incarnation, key, hash}),
        absl::StrCat("I3: ", worker.id, " binds ", Show(key), ", which it has not activated"));
}

void Oracles::WorkerFrees(const Peer& worker, const EpochKey& key, std::size_t bindings) {
  commit_heard_.erase({worker.incarnation, key});
  Check(bindings == 0,
        absl::StrCat("I6: ", worker.id, " frees ", Show(key), " under ", bindings, " bindings"));
}

void Oracles::WorkerHolds(const Peer& worker, const std::string& deployment, std::size_t epochs) {
  Check(epochs <= 2, absl::StrCat("I6: ", worker.id, " holds ", epochs, " epochs of ", deployment));
}

}  // namespace switchyard::sim
