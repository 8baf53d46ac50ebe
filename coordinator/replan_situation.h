// The state of members and epochs on which ReplanGate decides whether a deployment is planned anew.
#pragma once

#include <string>

#include "coordinator/members/held_epochs.h"
#include "coordinator/membership.h"
#include "coordinator/quarantine.h"
#include "coordinator/replan_gate.h"
#include "coordinator/serving_epoch.h"
#include "coordinator/spec/deployment_record.h"
#include "core/base/clock.h"

namespace switchyard {

struct ReplanSituation {
  ReplanGate::Situation gate;
  // "; w1 cannot be used: why" for each worker that no plan of `record` could use.
  std::string unused;
};

// `record`: that would be planned.
ReplanSituation LookAtMembers(const Membership& members, const ServingEpoch& serving,
                              const EpochRule& rule, const DeploymentRecord& record,
                              const Quarantine& quarantine, TimePoint now);

}  // namespace switchyard
