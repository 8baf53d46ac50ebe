#include "coordinator/serving_epoch.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/strings/str_format.h"

namespace switchyard {
namespace {

// Workers hold one or two epochs of a deployment, and broken ones report what they like.
constexpr std::size_t kInheritedMax = 16;

}  // namespace

void ServingEpoch::Replace(std::shared_ptr<const PlanUpdate> next, std::int64_t expert_bytes) {
  // One is kept and not more: sources switch at once, so that only one that was away may still name
  // the older plan.
  before_ = std::exchange(serving_, std::move(next));
  bytes_before_ = std::exchange(expert_bytes_, expert_bytes);
  kept_.reset();
}

void ServingEpoch::KeepFormer(Duration time, TimePoint now) {
  if (time > Duration::zero()) kept_ = Kept{now + time, bytes_before_};
}

std::shared_ptr<const PlanUpdate> ServingEpoch::EndFormer() {
  kept_.reset();
  // From now on also for a source that dials only later.
  PlanUpdate again = *serving_;
  again.former_kept = Duration::zero();
  serving_ = std::make_shared<const PlanUpdate>(std::move(again));
  return serving_;
}

std::string ServingEpoch::WhyEndFormer(const ReplanGate& gate, TimePoint now) const {
  if (now >= kept_->until) return "its time is over";
  if (kept_->sessions == 0) return "no session uses it any more";
  const auto any_of = [this](const Plan& plan, const auto& test) {
    return std::any_of(plan.workers.begin(), plan.workers.end(),
                       [&](const PlanWorker& worker) { return test(members_->Find(worker)); });
  };
  // No plan can mend its steps.
  if (any_of(before_->plan, [](const Member* member) { return member == nullptr; })) {
    return "a worker of it is lost";
  }
  // No plan can replace the serving one while workers keep two.
  if (NeedsReplacing(gate)) return "a worker has to be replaced";
  const auto leaves = [](const Member* member) { return member != nullptr && member->leaving; };
  // A worker of the former plan alone could otherwise not leave before that ends.
  return any_of(*plan(), leaves) || any_of(before_->plan, leaves) ? "a worker leaves" : "";
}

std::string ServingEpoch::DescribeFormer(TimePoint now) const {
  const std::int32_t sessions = kept_->sessions.value_or(0);
  return absl::StrFormat(
      "serving epoch %d; %d %s on with the former model, epoch %d, for %d s at "
      "most",
      plan()->epoch.value, sessions, sessions == 1 ? "session goes" : "sessions go",
      before_->plan.epoch.value, (kept_->until - now) / std::chrono::seconds(1) + 1);
}

HeldWeights ServingEpoch::FormerWeights() const {
  if (former() == nullptr) return {};
  return {&before_->plan, kept_->expert_bytes};
}

void ServingEpoch::NoteCommitted(Epoch epoch, const PlanHash& hash, const GrantKeys& keys) {
  inherited_[epoch] = hash;
  // The oldest goes: a source that is still on it is the least likely to come back.
  if (inherited_.size() > kInheritedMax) inherited_.erase(inherited_.begin());
  for (const GrantKey& key : keys) AddGrantKey(key, &inherited_keys_);
}

GrantKeys ServingEpoch::KeysWith(const GrantKey& own) const {
  GrantKeys keys;
  // The own one first: it signs what is granted from now on, the others only verify older grants.
  AddGrantKey(own, &keys);
  for (const GrantKey& key : inherited_keys_) AddGrantKey(key, &keys);
  return keys;
}

bool ServingEpoch::WasAnnounced(Epoch epoch, const PlanHash& hash) const {
  // A source goes on only to a plan of a higher number.
  const bool follows = serving_ == nullptr || epoch < serving_->plan.epoch;
  const auto inherited = inherited_.find(epoch);
  if (follows && inherited != inherited_.end() && inherited->second == hash) return true;
  const auto is = [&](const std::shared_ptr<const PlanUpdate>& update) {
    return update != nullptr && update->plan.epoch == epoch && update->hash == hash;
  };
  return is(serving_) || is(before_);
}

bool ServingEpoch::Holds() const {
  if (serving_ == nullptr) return false;
  // Committed, and nothing less: a worker that came back with the epoch only prepared cannot serve
  // it.
  const EpochKey key{plan()->deployment, plan()->epoch};
  return std::all_of(plan()->workers.begin(), plan()->workers.end(), [&](const PlanWorker& worker) {
    const Member* member = members_->Find(worker);
    const Hold* hold = member == nullptr ? nullptr : member->Find(key, serving_->hash);
    return hold != nullptr && hold->state == HoldState::kCommitted;
  });
}

bool ServingEpoch::IsSameAs(const Plan& proposal) const {
  // A worker may come back in the same incarnation without what it held. That does not change the
  // plan, and yet a new epoch is needed to load its experts again.
  if (!Holds()) return false;
  Plan numbered = proposal;
  numbered.epoch = plan()->epoch;
  return numbered == *plan();
}

bool ServingEpoch::AnyPresent() const {
  return serving_ != nullptr && std::any_of(plan()->workers.begin(), plan()->workers.end(),
                                            [this](const PlanWorker& worker) {
                                              return members_->Find(worker) != nullptr;
                                            });
}

bool ServingEpoch::NeedsReplacing(const ReplanGate& gate) const {
  if (serving_ == nullptr) return false;
  const auto stuck = [this](const PlanWorker& worker) {
    const Member* member = members_->Find(worker);
    return member != nullptr && !member->stuck.empty();
  };
  return !LostWorkers(gate).empty() ||
         std::any_of(plan()->workers.begin(), plan()->workers.end(), stuck);
}

std::string ServingEpoch::FirstDisconnected() const {
  if (serving_ == nullptr) return "";
  for (const PlanWorker& worker : plan()->workers) {
    const Member* member = members_->Find(worker);
    if (member != nullptr && !member->connected()) return worker.id;
  }
  return "";
}

int ServingEpoch::size() const {
  return serving_ == nullptr ? 0 : static_cast<int>(plan()->workers.size());
}

int ServingEpoch::CountLost() const {
  if (serving_ == nullptr) return 0;
  return static_cast<int>(std::count_if(
      plan()->workers.begin(), plan()->workers.end(),
      [this](const PlanWorker& worker) { return !members_->members().contains(worker.id); }));
}

std::vector<CapabilitySet> ServingEpoch::Capabilities() const {
  std::vector<CapabilitySet> capabilities;
  if (serving_ == nullptr) return capabilities;
  for (const PlanWorker& worker : plan()->workers) {
    // One that is away is left out: what it can do after its return is not known.
    const Member* member = members_->Find(worker);
    if (member != nullptr) capabilities.push_back(member->capabilities);
  }
  return capabilities;
}

bool ServingEpoch::IsOfAnotherModel(const Plan& next) const {
  return serving_ != nullptr && (plan()->manifest != next.manifest || plan()->shape != next.shape);
}

std::vector<Incarnation> ServingEpoch::LostWorkers(const ReplanGate& gate) const {
  std::vector<Incarnation> lost;
  if (serving_ == nullptr) return lost;
  for (const PlanWorker& worker : plan()->workers) {
    // After a restart a stored worker that has not registered yet is not lost, only late.
    if (members_->Find(worker) != nullptr || gate.Expects(worker.id)) continue;
    lost.push_back(worker.incarnation);
  }
  return lost;
}

}  // namespace switchyard
