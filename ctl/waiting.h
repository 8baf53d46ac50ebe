// Waits until an object of the coordinator is in a state, by asking for it twice a second: what the
// coordinator says then is true, whatever happened in between, also across its restarts.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/cli/progress_line.h"
#include "ctl/coordinator_client.h"

namespace switchyard::ctl {

// The values of `wait --for`.
enum class Condition {
  kServing,  // deployment: its committed plan serves and is of its specification
  kDeleted,  // deployment: it is gone
  kLive,     // worker: plans may use it
  kDrained,  // worker: it was drained, and holds nothing any more
  // worker: no plan uses it that does not already; `cordon --wait` waits for it
  kCordoned,
};

struct Waiting {
  CoordinatorClient* coordinator = nullptr;
  // How long at most.
  Duration timeout{};
  // Called with each new line on what is waited for, for people. May be null.
  std::function<void(const std::string& line)> tell = nullptr;
  // Called with the bytes of what is waited for while there are some, and with nullopt before a
  // line is told and at the end. May be null: `tell` gets them as text.
  std::function<void(const std::optional<ProgressFacts>& facts)> progress = nullptr;
  // Called with a line like those of `tell`, each ten seconds. May be null.
  std::function<void(const std::string& line)> log = nullptr;
  // The coordinator has agreed to delete the deployment, or to drain the worker. A deployment of
  // that name that is not being deleted is another one, applied since; a worker that is not there
  // has left.
  bool agreed = false;
};

// Blocks. Errors: those of the coordinator; the deployment's own problem where waiting is no use
// (kServing); kDeadlineExceeded (NOT_READY) saying what it still waits for. While the coordinator
// cannot be reached it waits on. `found`, unless null, is the deployment as it
// was seen last; unchanged where it never was.
absl::Status WaitForDeployment(const Waiting& waiting, const std::string& name, Condition condition,
                               v1::Deployment* found = nullptr);
// The same. A drained worker that has left the service counts as drained, unless a committed plan
// still names it, as after a restart of the coordinator; and one that is not there as cordoned.
absl::Status WaitForWorker(const Waiting& waiting, const std::string& id, Condition condition,
                           v1::Worker* found = nullptr);

// The time between two looks.
void Pause();

// The problem of a deployment that more workers cannot solve; otherwise OK.
absl::Status RefusalOf(const v1::Deployment& deployment);

}  // namespace switchyard::ctl
