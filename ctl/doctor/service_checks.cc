#include "ctl/doctor/service_checks.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/amount_text.h"

namespace switchyard::ctl {
namespace {

// A clock that is off by less breaks neither certificates nor the order of events.
constexpr std::int64_t kSkewSeconds = 5;
constexpr std::size_t kShown = 4;

Check Waits(absl::string_view name, absl::string_view on) {
  return Skipped(name, absl::StrCat("not looked at: ", on, " comes first"),
                 absl::StrCat("put ", on, " right"));
}

// "a, b and 3 more"
std::string Some(const std::vector<std::string>& texts) {
  const std::size_t shown = std::min(texts.size(), kShown);
  const std::string first =
      absl::StrJoin(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  return shown == texts.size() ? first
                               : absl::StrCat(first, " and ", texts.size() - shown, " more");
}

// Returns what has to be right before anything is known about the service; empty: all of it is.
absl::string_view Before(const ServiceFacts& facts) {
  if (!facts.name.wrong.empty()) return kDnsCheck;
  const bool answers = facts.coordinator.has_value() && facts.coordinator->status.ok();
  return answers ? "" : kCoordinatorCheck;
}

// The same for what is known of the workers.
absl::string_view BeforeWorkers(const ServiceFacts& facts) {
  const absl::string_view before = Before(facts);
  if (!before.empty()) return before;
  return facts.list.has_value() && facts.list->ok() ? "" : kWorkersCheck;
}

// A worker of which an operator has said that plans do without it.
bool IsSetAside(const WorkerFacts& worker) {
  return worker.state == "cordoned" || worker.state == "draining" || worker.state == "drained" ||
         worker.state == "leaving";
}

// An answer of any kind proves that the port can be reached.
bool Answers(const WorkerFacts& worker) {
  return !absl::IsUnavailable(worker.answer) && !absl::IsDeadlineExceeded(worker.answer);
}

// Lists who has another number than the coordinator.
std::vector<std::string> OtherProtocols(const ServiceFacts& facts) {
  const std::uint32_t protocol = facts.coordinator->protocol;
  std::vector<std::string> others;
  if (facts.own_protocol != protocol) {
    others.push_back(absl::StrCat("syctl has ", facts.own_protocol));
  }
  for (const WorkerFacts& each : facts.workers) {
    if (each.protocol != protocol) others.push_back(absl::StrCat(each.id, " has ", each.protocol));
  }
  return others;
}

std::vector<std::string> OtherReleases(const ServiceFacts& facts) {
  const std::string& release = facts.coordinator->version;
  std::vector<std::string> others;
  if (facts.own_version != release) others.push_back(absl::StrCat("syctl ", facts.own_version));
  for (const WorkerFacts& each : facts.workers) {
    const bool other = !each.version.empty() && each.version != release;
    if (other) others.push_back(absl::StrCat(each.id, " ", each.version));
  }
  return others;
}

}  // namespace

Check CheckName(const ServiceFacts& facts) {
  const NameFacts& name = facts.name;
  if (name.wrong.empty()) {
    return Good(
        kDnsCheck,
        absl::StrCat(name.host, " is ", name.first,
                     name.addresses > 1 ? absl::StrCat(" and ", name.addresses - 1, " more") : ""));
  }
  return Failure(kDnsCheck, absl::StrCat(name.host, " does not resolve: ", name.wrong),
                 "correct --target or the context; in a Pod, look at the Service, the namespace in "
                 "the name and a network policy that blocks port 53");
}

Check CheckCoordinator(const ServiceFacts& facts) {
  if (!facts.name.wrong.empty()) return Waits(kCoordinatorCheck, kDnsCheck);
  if (!facts.coordinator.has_value()) {
    return Failure(kCoordinatorCheck, "no time was left to ask it", "give more --timeout");
  }
  const CoordinatorFacts& coordinator = *facts.coordinator;
  if (!coordinator.status.ok()) {
    std::string next = coordinator.next;
    if (next.empty()) next = "look at its log and at 'syctl version'";
    return Failure(kCoordinatorCheck, std::string(coordinator.status.message()), next);
  }
  const std::string found = absl::StrCat(facts.target, " answers, release ", coordinator.version);
  if (coordinator.ready == ServingState::kNotServing) {
    return Failure(kCoordinatorCheck, absl::StrCat(found, ", and is not ready"),
                   "/readyz of its system port says what is missing; its log says more");
  }
  if (coordinator.ready == ServingState::kUnknown) {
    return Warning(kCoordinatorCheck, absl::StrCat(found, ", and does not say whether it is ready"),
                   "look at /readyz of its system port");
  }
  return Good(kCoordinatorCheck, absl::StrCat(found, ", ready"));
}

Check CheckClock(const ServiceFacts& facts) {
  if (const absl::string_view before = Before(facts); !before.empty()) {
    return Waits(kClockCheck, before);
  }
  if (!facts.newest_event_s.has_value()) {
    return Skipped(kClockCheck, "the coordinator has told no time: it shows no events here",
                   "nothing; a --tls-dir of an operator or observer shows them");
  }
  const std::int64_t ahead = *facts.newest_event_s - facts.now_s;
  if (ahead <= kSkewSeconds) {
    return Good(kClockCheck,
                "no event of the coordinator lies in the future; a clock here that is ahead of "
                "its clock is not seen");
  }
  return Warning(kClockCheck,
                 absl::StrCat("the clock here is at least ", ahead,
                              " s behind the coordinator's: its newest event lies in the future"),
                 "set the clocks of both machines by NTP; certificates are judged by them");
}

Check CheckWorkers(const ServiceFacts& facts) {
  if (const absl::string_view before = Before(facts); !before.empty()) {
    return Waits(kWorkersCheck, before);
  }
  if (!facts.list.has_value()) {
    return Failure(kWorkersCheck, "no time was left to ask for the workers", "give more --timeout");
  }
  if (absl::IsPermissionDenied(*facts.list)) {
    return Skipped(kWorkersCheck, std::string(facts.list->message()),
                   "--tls-dir of an operator or observer");
  }
  if (!facts.list->ok()) {
    return Failure(kWorkersCheck, std::string(facts.list->message()),
                   "look at the coordinator's log");
  }
  std::size_t live = 0;
  std::size_t aside = 0;
  std::vector<std::string> others;
  for (const WorkerFacts& each : facts.workers) {
    if (each.state == "live") {
      ++live;
    } else if (IsSetAside(each)) {
      ++aside;
    } else {
      others.push_back(
          absl::StrCat(each.id, " ", each.state,
                       each.problem.empty() ? "" : absl::StrCat(" (", each.problem, ")")));
    }
  }
  std::string found = absl::StrCat(live, " of ", facts.workers.size(), " known workers are live");
  if (aside > 0) absl::StrAppend(&found, ", ", aside, " are set aside by an operator");
  if (!others.empty()) absl::StrAppend(&found, "; ", Some(others));
  if (facts.workers.empty()) {
    return Warning(kWorkersCheck, "the coordinator knows no worker",
                   "start switchyard-worker with --coordinator, or look at its log");
  }
  const char* next = "'syctl describe worker ID' says what is wrong with one";
  if (live == 0) return Failure(kWorkersCheck, found, next);
  return others.empty() ? Good(kWorkersCheck, found) : Warning(kWorkersCheck, found, next);
}

Check CheckVersions(const ServiceFacts& facts) {
  if (const absl::string_view before = Before(facts); !before.empty()) {
    return Waits(kVersionsCheck, before);
  }
  const CoordinatorFacts& coordinator = *facts.coordinator;
  const std::string found = absl::StrCat("the coordinator has release ", coordinator.version,
                                         " and protocol ", coordinator.protocol);
  if (const auto others = OtherProtocols(facts); !others.empty()) {
    return Failure(kVersionsCheck, absl::StrCat(found, "; of the protocol, ", Some(others)),
                   "install one release everywhere; those of two protocols do not talk");
  }
  if (const auto others = OtherReleases(facts); !others.empty()) {
    return Warning(kVersionsCheck, absl::StrCat(found, "; others: ", Some(others)),
                   "finish the upgrade, or use the syctl of that release");
  }
  const auto told = std::count_if(facts.workers.begin(), facts.workers.end(),
                                  [](const WorkerFacts& each) { return !each.version.empty(); });
  return Good(kVersionsCheck,
              absl::StrCat(found, "; so have syctl and ", CountText(told, "worker"), " asked"));
}

Check CheckWorkerNames(const ServiceFacts& facts) {
  if (const absl::string_view before = BeforeWorkers(facts); !before.empty()) {
    return Waits(kWorkerDnsCheck, before);
  }
  std::vector<std::string> wrong;
  for (const NameFacts& each : facts.worker_names) {
    if (!each.wrong.empty()) wrong.push_back(absl::StrCat(each.host, ": ", each.wrong));
  }
  if (!wrong.empty()) {
    return Failure(kWorkerDnsCheck,
                   absl::StrCat(wrong.size(), " of ", facts.worker_names.size(),
                                " hosts of workers do not resolve here: ", Some(wrong)),
                   "let workers advertise addresses that are known here (--advertise)");
  }
  if (facts.worker_names.empty()) {
    return Skipped(kWorkerDnsCheck, "there is no worker's host to look up", "start workers");
  }
  const std::string rest =
      facts.unresolved == 0 ? "" : absl::StrCat("; ", facts.unresolved, " more were not looked up");
  return Good(kWorkerDnsCheck, absl::StrCat(facts.worker_names.size() == 1
                                                ? "the workers' host resolves"
                                                : absl::StrCat("all ", facts.worker_names.size(),
                                                               " hosts of workers resolve"),
                                            rest));
}

Check CheckWorkerPorts(const ServiceFacts& facts) {
  if (const absl::string_view before = BeforeWorkers(facts); !before.empty()) {
    return Waits(kWorkerPortsCheck, before);
  }
  std::map<std::string, bool> unresolved;
  for (const NameFacts& each : facts.worker_names) {
    if (!each.wrong.empty()) unresolved[each.host] = true;
  }
  if (!unresolved.empty()) return Waits(kWorkerPortsCheck, kWorkerDnsCheck);
  std::size_t asked = 0;
  std::vector<std::string> silent;
  for (const WorkerFacts& each : facts.workers) {
    if (!each.asked) continue;
    ++asked;
    if (!Answers(each)) silent.push_back(absl::StrCat(each.id, " at ", each.endpoint));
  }
  const std::size_t rest = facts.workers.size() - asked;
  const std::string more = rest == 0 ? "" : absl::StrCat("; ", rest, " more were not asked");
  if (!silent.empty()) {
    return Failure(kWorkerPortsCheck,
                   absl::StrCat(silent.size(), " of ", asked,
                                " ports do not answer from here: ", Some(silent), more),
                   "a network policy or firewall between here and there, or a worker that ended: "
                   "'syctl get workers'");
  }
  if (asked == 0) {
    return Skipped(kWorkerPortsCheck, absl::StrCat("no worker was asked", more),
                   rest == 0 ? "start workers" : "give more --timeout");
  }
  const std::string which =
      asked == 1 ? "the port answers" : absl::StrCat("all ", asked, " ports answer");
  return Good(kWorkerPortsCheck, absl::StrCat(which, " from here", more));
}

std::vector<Check> ServiceChecks(const ServiceFacts& facts) {
  return {CheckName(facts),       CheckCoordinator(facts), CheckClock(facts),
          CheckWorkers(facts),    CheckVersions(facts),    CheckWorkerNames(facts),
          CheckWorkerPorts(facts)};
}

std::vector<Check> ServiceSkipped(const std::string& why, const std::string& next) {
  std::vector<Check> checks;
  for (const char* name : {kDnsCheck, kCoordinatorCheck, kClockCheck, kWorkersCheck, kVersionsCheck,
                           kWorkerDnsCheck, kWorkerPortsCheck}) {
    checks.push_back(Skipped(name, why, next));
  }
  return checks;
}

}  // namespace switchyard::ctl
