// Makes workers drop the epochs of one deployment that they must not hold: sends ABORT and RETIRE,
// and notes in each member's holds what was sent.
#pragma once

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"

#include "coordinator/members/held_epochs.h"
#include "coordinator/membership.h"
#include "coordinator/spec/options.h"
#include "core/base/clock.h"
#include "core/ids.h"

namespace switchyard {

class EpochDrops {
 public:
  // `options` and `members` outlive it.
  EpochDrops(const CoordinatorOptions* options, Membership* members, std::string deployment)
      : options_(options), members_(members), deployment_(std::move(deployment)) {}

  // Drops what `rule` does not want, except RETIRE of epochs for which `held_back` is true.
  // `urgent`: the steps that run on them have urgent_retire to end; else as long as they need, up
  // to retire_patience. Repeated at every step; each message is sent once.
  void DropUnwanted(const EpochRule& rule, bool urgent, absl::FunctionRef<bool(Epoch)> held_back,
                    TimePoint now);
  // Drops everything, urgently: the deployment is gone.
  void DropAll(TimePoint now);
  // The first worker that still holds something, and what: "w0 to free epoch 3"; empty: nobody
  // does.
  [[nodiscard]] std::string FirstHeld() const;

 private:
  // Returns what follows the hold in the member's holds.
  HeldEpochs::iterator Drop(Member& member, HeldEpochs::iterator hold, bool retire, TimePoint now);
  // Repeats RETIRE with a time limit: at once if `urgent`, else when it has taken too long.
  void UrgeRetire(Member& member, bool urgent, TimePoint now);

  const CoordinatorOptions* options_;
  Membership* members_;
  const std::string deployment_;
};

}  // namespace switchyard
