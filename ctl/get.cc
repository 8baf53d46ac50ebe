#include "ctl/get.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/errors.h"
#include "ctl/history_tables.h"
#include "ctl/json.h"
#include "ctl/metrics.h"
#include "ctl/output/json_path.h"
#include "ctl/output/tables.h"
#include "ctl/waiting.h"

namespace switchyard::ctl {
namespace {

// Groups configs by layer, so that a script need not join placements and configs:
// {"deployment", "epoch", "layers": [{"layer", "experts", "configs"}]}
Json LayersJson(const v1::Plan& plan) {
  Json layers = Json::array();
  for (const v1::LayerPlacement& placement : plan.layers()) {
    Json layer = ToJson(placement);
    layer["configs"] = Json::array();
    for (const v1::DispatchConfig& config : plan.configs()) {
      if (config.layer() == placement.layer()) layer["configs"].push_back(ToJson(config));
    }
    layers.push_back(std::move(layer));
  }
  return {{"deployment", plan.deployment()}, {"epoch", plan.epoch()}, {"layers", layers}};
}

absl::Status GetOfPlan(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const v1::GetPlanResponse proto, run.coordinator.Plan(run.line.deployment));
  if (run.json()) {
    *out += Print(run.line.kind == Kind::kLayers ? LayersJson(proto.plan()) : ToJson(proto));
    return absl::OkStatus();
  }
  SY_ASSIGN_OR_RETURN(const HashedPlan plan, FromProto(proto));
  *out += run.line.kind == Kind::kLayers ? LayersTable(plan.plan) : PlanText(plan.plan, plan.hash);
  return absl::OkStatus();
}

// Orders elements as --sort-by says: numbers by value, texts by their bytes, what is missing first.
template <typename List>
void Sort(const Run& run, List* list) {
  if (run.line.sort_by.empty()) return;
  const auto path = JsonPath::Parse(run.line.sort_by);  // it was checked
  std::vector<std::pair<Json, int>> keys;
  for (int i = 0; i < list->size(); ++i) {
    const Json element = ToJson(list->Get(i));
    const Json* const key = path->First(element);
    keys.emplace_back(key == nullptr ? Json() : *key, i);
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const List unsorted = *list;
  for (int i = 0; i < list->size(); ++i) {
    *list->Mutable(i) = unsorted.Get(keys[static_cast<std::size_t>(i)].second);
  }
}

// Leaves the one in `list` that is named, if one is. Errors: kNotFound (BAD_REQUEST).
template <typename List, typename NameOf>
absl::Status KeepNamed(const Run& run, const std::string& kind, List* list, NameOf name_of) {
  Sort(run, list);
  if (run.line.name.empty()) return absl::OkStatus();
  std::vector<std::string> known;
  for (int i = list->size(); i-- > 0;) {
    known.insert(known.begin(), name_of(list->Get(i)));
    if (known.front() != run.line.name) list->DeleteSubrange(i, 1);
  }
  return list->empty() ? NoSuch(kind, run.line.name, known) : absl::OkStatus();
}

template <typename List, typename Wanted>
void KeepIf(List* list, Wanted wanted) {
  for (int i = list->size(); i-- > 0;) {
    if (!wanted(list->Get(i))) list->DeleteSubrange(i, 1);
  }
}

// Tells an empty list of something that is there from one of a wrong name. Errors: kNotFound
// (BAD_REQUEST) where no deployment is called `name`, nor, with `workers_too`, a worker; those of
// calls.
absl::Status CheckSomethingIsNamed(const Run& run, const std::string& name, bool workers_too) {
  SY_ASSIGN_OR_RETURN(const auto deployments, run.coordinator.Deployments());
  std::vector<std::string> known;
  for (const auto& one : deployments.deployments()) known.push_back(one.spec().name());
  if (workers_too) {
    SY_ASSIGN_OR_RETURN(const auto workers, run.coordinator.Workers());
    for (const auto& one : workers.workers()) known.push_back(one.id());
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return NoSuch(workers_too ? "deployment or worker" : "deployment", name, known);
}

bool IsWanted(const Run& run, const v1::Event& event) {
  return run.line.name.empty() || event.name() == run.line.name;
}

absl::Status GetOnce(const Run& run, std::string* out) {
  switch (run.line.kind) {
    case Kind::kDeployments: {
      SY_ASSIGN_OR_RETURN(auto list, run.coordinator.Deployments());
      SY_RETURN_IF_ERROR(KeepNamed(run, "deployment", list.mutable_deployments(),
                                   [](const auto& one) { return one.spec().name(); }));
      *out += run.Show(list, [&](const auto& message) {
        return DeploymentsTable(message, run.screen.width, run.screen.wide);
      });
      return absl::OkStatus();
    }
    case Kind::kModels: {
      SY_ASSIGN_OR_RETURN(auto list, run.coordinator.Models());
      SY_RETURN_IF_ERROR(KeepNamed(run, "model", list.mutable_models(),
                                   [](const auto& one) { return one.name(); }));
      *out += run.Show(list, ModelsTable);
      return absl::OkStatus();
    }
    case Kind::kWorkers: {
      SY_ASSIGN_OR_RETURN(auto list, run.coordinator.Workers());
      SY_RETURN_IF_ERROR(KeepNamed(run, "worker", list.mutable_workers(),
                                   [](const auto& one) { return one.id(); }));
      *out += run.Show(list,
                       [&](const auto& message) { return WorkersTable(message, run.screen.wide); });
      return absl::OkStatus();
    }
    case Kind::kRevisions: {
      SY_ASSIGN_OR_RETURN(auto list, run.coordinator.Revisions(run.line.deployment));
      Sort(run, list.mutable_revisions());
      *out += run.Show(
          list, [&](const auto& message) { return RevisionsTable(message, run.screen.width); });
      return absl::OkStatus();
    }
    case Kind::kSessions: {
      SY_ASSIGN_OR_RETURN(auto list, run.coordinator.Sessions());
      KeepIf(list.mutable_sessions(), [&](const v1::Session& one) {
        return run.line.deployment.empty() || one.deployment() == run.line.deployment;
      });
      if (list.sessions().empty() && !run.line.deployment.empty()) {
        SY_RETURN_IF_ERROR(CheckSomethingIsNamed(run, run.line.deployment, /*workers_too=*/false));
      }
      Sort(run, list.mutable_sessions());
      *out += run.Show(list, SessionsTable);
      return absl::OkStatus();
    }
    case Kind::kEvents: {
      SY_ASSIGN_OR_RETURN(auto list, run.coordinator.Events(0));
      KeepIf(list.mutable_events(), [&](const v1::Event& one) { return IsWanted(run, one); });
      // The journal is bounded, so that something may be there without events.
      if (list.events().empty() && !run.line.name.empty()) {
        SY_RETURN_IF_ERROR(CheckSomethingIsNamed(run, run.line.name, /*workers_too=*/true));
      }
      Sort(run, list.mutable_events());
      *out += run.Show(list,
                       [&](const auto& message) { return EventsTable(message, run.screen.width); });
      return absl::OkStatus();
    }
    case Kind::kMetrics:
      return GetMetrics(run, out);
    default:
      return GetOfPlan(run, out);
  }
}

// Whenever the list looks different. Compared as tables: JSON has numbers that change all the time.
absl::Status Watch(const Run& run) {
  const Screen as_table{OutputFormat::kTable, run.screen.width, {}, run.screen.wide};
  std::string shown;
  for (;;) {
    std::string table;
    std::string text;
    absl::Status status = GetOnce({run.line, run.coordinator, as_table}, &table);
    if (status.ok() && table != shown) status = GetOnce(run, &text);
    // The coordinator may be restarting, and the watch goes on then.
    if (!status.ok() && ReasonOf(status) != Reason::kCoordinatorLost) return status;
    if (!status.ok() && run.screen.viewer.tell)
      run.screen.viewer.tell(std::string(status.message()));
    if (status.ok() && table != shown) {
      const bool apart = !shown.empty() && !run.json();
      if (!run.screen.viewer.live(apart ? absl::StrCat("\n", text) : text)) return absl::OkStatus();
      shown = std::move(table);
    }
    Pause();
  }
}

// Each event once, as it happens.
absl::Status Follow(const Run& run) {
  std::uint64_t after = 0;
  for (;;) {
    const auto list = run.coordinator.Events(after);
    if (!list.ok() && ReasonOf(list.status()) != Reason::kCoordinatorLost) return list.status();
    // A coordinator that restarted counts from 1 again.
    const bool restarted = list.ok() && list->last() < after;
    if (!list.ok() && run.screen.viewer.tell) {
      run.screen.viewer.tell(std::string(list.status().message()));
    }
    if (list.ok() && !restarted) {
      std::string text;
      for (const v1::Event& event : list->events()) {
        if (IsWanted(run, event)) text += run.Show(event, EventLine);
      }
      if (!text.empty() && !run.screen.viewer.live(text)) return absl::OkStatus();
      after = list->last();
    }
    if (restarted) after = 0;
    Pause();
  }
}

}  // namespace

absl::Status Get(const Run& run, std::string* out) {
  const bool follows = run.line.watch && run.screen.viewer.live;
  if (follows && run.line.kind == Kind::kEvents) return Follow(run);
  return run.line.watch && run.screen.viewer.live ? Watch(run) : GetOnce(run, out);
}

}  // namespace switchyard::ctl
