// The epoch that serves a deployment, and the one that served before it.
//
// "Serves" means: every worker committed it, the store says so, and sources have learned of it. It
// stays the serving epoch when a worker of it dies, until another one replaces it. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/membership.h"
#include "coordinator/placement/memory_ledger.h"
#include "coordinator/replan_gate.h"
#include "core/capability.h"
#include "core/grant_signature.h"
#include "core/session_messages.h"

namespace switchyard {

class ServingEpoch {
 public:
  // `members` outlives it. The plans are those that the store has; null: none.
  ServingEpoch(const Membership* members, std::shared_ptr<const PlanUpdate> serving,
               std::shared_ptr<const PlanUpdate> before, std::int64_t expert_bytes)
      : members_(members),
        serving_(std::move(serving)),
        before_(std::move(before)),
        expert_bytes_(expert_bytes) {}

  // `next` is committed, stored and marked; an expert of its checkpoint takes `expert_bytes`.
  void Replace(std::shared_ptr<const PlanUpdate> next, std::int64_t expert_bytes);
  // Null before the first epoch.
  [[nodiscard]] const std::shared_ptr<const PlanUpdate>& update() const { return serving_; }
  // The same, for code that only looks.
  [[nodiscard]] const Plan* plan() const { return serving_ == nullptr ? nullptr : &serving_->plan; }

  // The plan before this one is of another model, and its sessions go on for `time`: its workers
  // keep it. Does nothing for zero. Not known any more after a restart.
  void KeepFormer(Duration time, TimePoint now);
  // The result is what sources have to hear before its epoch is retired: the serving plan, with
  // nothing kept.
  std::shared_ptr<const PlanUpdate> EndFormer();
  // Null: none is kept.
  [[nodiscard]] const PlanUpdate* former() const { return kept_ ? before_.get() : nullptr; }
  // The next three only with a former one. How many sessions use it.
  void SetFormerSessions(std::int32_t sessions) { kept_->sessions = sessions; }
  // Why it is kept no longer; empty: it is kept.
  [[nodiscard]] std::string WhyEndFormer(const ReplanGate& gate, TimePoint now) const;
  // "serving epoch 5; 3 sessions go on with the former model, epoch 4, for 43 s at most".
  [[nodiscard]] std::string DescribeFormer(TimePoint now) const;
  // The weights of the former plan; empty: none is kept.
  [[nodiscard]] HeldWeights FormerWeights() const;

  // The weights that the plan puts on its workers; empty before the first epoch.
  [[nodiscard]] HeldWeights Weights() const { return {plan(), expert_bytes_}; }

  // A worker has committed this plan, with these keys. Where this coordinator did not, one before
  // it did whose store was lost, and sources may hold it. The newest 16 plans are kept, and the
  // first kGrantKeysMax keys.
  void NoteCommitted(Epoch epoch, const PlanHash& hash, const GrantKeys& keys);
  // The keys for the workers of the next plan: `own`, which signs, and those of NoteCommitted,
  // under which sources may hold grants.
  [[nodiscard]] GrantKeys KeysWith(const GrantKey& own) const;
  // Sources may hold this plan: it serves, it served before the one that does, or NoteCommitted
  // told of it. A source that was away for longer opens a new session.
  [[nodiscard]] bool WasAnnounced(Epoch epoch, const PlanHash& hash) const;
  // Every worker of the plan is present and holds it. False before the first epoch.
  [[nodiscard]] bool Holds() const;
  // Holds(), and a proposal, which has no number yet, would change nothing but the number.
  [[nodiscard]] bool IsSameAs(const Plan& proposal) const;
  // Some worker of the plan is a member, with or without a stream.
  [[nodiscard]] bool AnyPresent() const;
  // Some worker of the plan is gone for good, or stuck (Member::stuck).
  [[nodiscard]] bool NeedsReplacing(const ReplanGate& gate) const;
  // The first worker of the plan whose stream has ended, in its grace; empty: none.
  [[nodiscard]] std::string FirstDisconnected() const;
  // Workers of the plan; 0 before the first epoch.
  [[nodiscard]] int size() const;
  // Those of them whose id no member has.
  [[nodiscard]] int CountLost() const;
  // The answers of sessions on `next` would come from other weights, or from weights of another
  // shape. False before the first epoch.
  [[nodiscard]] bool IsOfAnotherModel(const Plan& next) const;
  // The workers of the plan that are gone, however long one waits.
  [[nodiscard]] std::vector<Incarnation> LostWorkers(const ReplanGate& gate) const;
  // The capabilities of the plan's workers that are present, in the plan's order.
  [[nodiscard]] std::vector<CapabilitySet> Capabilities() const;

 private:
  struct Kept {
    TimePoint until;
    std::int64_t expert_bytes = 0;
    std::optional<std::int32_t> sessions = {};  // not counted so far
  };

  // Members are looked up at every call: they change between steps.
  const Membership* members_;
  std::shared_ptr<const PlanUpdate> serving_;
  std::shared_ptr<const PlanUpdate> before_;
  std::optional<Kept> kept_;
  std::int64_t bytes_before_ = 0;  // as expert_bytes_, of the plan before
  std::map<Epoch, PlanHash> inherited_;
  GrantKeys inherited_keys_;
  // The record may have moved on to another checkpoint.
  std::int64_t expert_bytes_;
};

}  // namespace switchyard
