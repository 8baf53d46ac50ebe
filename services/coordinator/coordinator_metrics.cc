#include "services/coordinator/coordinator_metrics.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/device_profile.h"
#include "services/system/metrics_text.h"

namespace switchyard {
namespace {

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;

// By WorkerState and DeploymentState; the words of syctl.
constexpr std::array kWorkerStates{"live",        "disconnected", "leaving",  "stuck",
                                   "unreachable", "cordoned",     "draining", "drained"};
constexpr std::array kDeploymentStates{"pending", "serving",  "unavailable",
                                       "reading", "deleting", "refused"};
static_assert(kWorkerStates.size() == static_cast<std::size_t>(WorkerState::kDrained) + 1);
static_assert(kDeploymentStates.size() == static_cast<std::size_t>(DeploymentState::kRefused) + 1);

void AddWorkers(const CoordinatorView& view, MetricsText* text) {
  std::array<std::array<std::uint64_t, kDeviceKinds>, kWorkerStates.size()> workers{};
  for (const WorkerView& worker : view.workers) {
    ++workers[static_cast<std::size_t>(worker.state)]
             [static_cast<std::size_t>(worker.capabilities.device)];
  }
  text->Begin(kGauge, "moe_workers", "Workers that are members.");
  for (std::size_t state = 0; state < workers.size(); ++state) {
    for (std::size_t device = 0; device < kDeviceKinds; ++device) {
      text->Add(workers[state][device],
                {{"state", kWorkerStates[state]},
                 {"device", DeviceKindName(static_cast<DeviceKind>(device))}});
    }
  }
}

void AddDeployments(const CoordinatorView& view, MetricsText* text) {
  std::array<std::uint64_t, kDeploymentStates.size()> deployments{};
  for (const DeploymentView& deployment : view.deployments) {
    ++deployments[static_cast<std::size_t>(deployment.state)];
  }
  text->Begin(kGauge, "moe_deployments", "Deployments, by what they do.");
  for (std::size_t state = 0; state < deployments.size(); ++state) {
    text->Add(deployments[state], {{"state", kDeploymentStates[state]}});
  }

  text->Begin(kGauge, "moe_plan_epoch", "The epoch that serves; 0: none.");
  for (const DeploymentView& deployment : view.deployments) {
    const std::uint64_t epoch =
        deployment.serving == nullptr ? 0 : deployment.serving->plan.epoch.value;
    text->Add(epoch, {{"deployment", deployment.spec.name}});
  }
  text->Begin(kGauge, "moe_sessions_open", "Sessions that are open.");
  for (const DeploymentView& deployment : view.deployments) {
    text->Add(static_cast<double>(deployment.sessions), {{"deployment", deployment.spec.name}});
  }
  text->Begin(kCounter, "moe_plan_transitions_total",
              "Changes to a new epoch that ended, by how: it serves, or it was given up.");
  for (const DeploymentView& deployment : view.deployments) {
    const std::string& name = deployment.spec.name;
    text->Add(deployment.changes.served, {{"deployment", name}, {"result", "served"}});
    text->Add(deployment.changes.failed, {{"deployment", name}, {"result", "failed"}});
  }
}

void AddTimes(const CoordinatorTimes& times, MetricsText* text) {
  text->Begin(MetricType::kHistogram, "moe_plan_apply_duration_seconds",
              "From the begin of a change to a new epoch until it serves or is given up.")
      .Add(times.change_served, {{"result", "served"}})
      .Add(times.change_failed, {{"result", "failed"}});
  text->Begin(MetricType::kHistogram, "moe_deployment_apply_duration_seconds",
              "From the request of an apply or a rollback until its answer.")
      .Add(times.applied, {{"result", "ok"}})
      .Add(times.refused, {{"result", "error"}});
}

}  // namespace

MetricsText CoordinatorMetrics(const CoordinatorView& view, const DriverCounters& counters,
                               const Health& health) {
  MetricsText text;
  AddBuildInfo(&text);
  AddHealth(health, &text);
  AddWorkers(view, &text);
  AddDeployments(view, &text);
  AddTimes(view.times, &text);
  text.Begin(kCounter, "moe_store_writes_total", "Writes to the store of plans.")
      .Add(counters.store_writes, {{"result", "ok"}})
      .Add(counters.store_writes_failed, {{"result", "failed"}});
  text.Begin(kCounter, "moe_coordinator_turns_total",
             "Turns of the coordinator's thread; twenty a second when it is idle.")
      .Add(counters.turns);
  return text;
}

}  // namespace switchyard
