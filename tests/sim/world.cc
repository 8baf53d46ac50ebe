#include "tests/sim/world.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/sim/coordinator_node.h"
#include "tests/sim/source_node.h"
#include "tests/sim/worker_node.h"
#include "tests/testing/model_facts.h"

namespace switchyard::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStormStep = milliseconds(100);

CoordinatorOptions ShortTimes() {
  CoordinatorOptions coordinator;
  // Shorter than the product's, so that the end of a run need not be waited for.
  coordinator.prepare_timeout = seconds(8);
  coordinator.commit_timeout = seconds(3);
  coordinator.quarantine_first = seconds(1);
  coordinator.quarantine_last = seconds(4);
  return coordinator;
}

}  // namespace

World::World(SimOptions options)
    : rng(options.seed),
      network(&scheduler, &rng),
      coordinator_options(ShortTimes()),
      oracles(&scheduler, &disk, coordinator_options),
      options_(std::move(options)) {}

World::~World() = default;

std::string LastEvents(SimOptions options, std::size_t lines) {
  std::deque<std::string> last;
  options.trace = [&last, lines](const std::string& line) {
    last.push_back(line);
    if (last.size() > lines) last.pop_front();
  };
  World(std::move(options)).Run();
  return absl::StrJoin(last, "\n");
}

void World::Print(const std::string& line) const {
  const auto ms = std::chrono::duration_cast<milliseconds>(now().time_since_epoch());
  options_.trace(absl::StrFormat("%7d ms  %s", ms.count(), line));
}

Duration World::Between(Duration least, Duration most) {
  return least + Duration(static_cast<Duration::rep>(
                     rng.Below(static_cast<std::uint64_t>((most - least).count()) + 1)));
}

WorkerNode* World::FindWorker(const std::string& id) {
  for (const auto& worker : workers_) {
    if (worker->name() == id) return worker.get();
  }
  return nullptr;
}

WorkerNode& World::AnyWorker() { return *workers_[rng.Below(workers_.size())]; }

// Each kind of fault is in a third of the seeds, so that some are seen alone.
void World::MakeWeather() {
  const auto maybe = [this](double most) { return Chance(0.35) ? most * rng.Uniform() : 0.0; };
  weather = {.crash_coordinator = maybe(0.3),
             .crash_worker = maybe(0.6),
             .leave_worker = maybe(0.3),
             .pause_coordinator = maybe(0.2),
             .pause_worker = maybe(0.4),
             .break_stream = maybe(1.0),
             .cut = maybe(0.5),
             .reapply = maybe(0.3),
             .remove = maybe(0.15),
             .duty = maybe(0.3),
             .crash_source = maybe(0.4),
             .pause_source = maybe(0.3),
             .nack = maybe(0.3),
             .bit_flip = maybe(0.3),
             .slow_staging = maybe(0.4),
             .bad_write = maybe(0.3),
             .slow_disk = maybe(0.3),
             .damage = maybe(0.1),
             .slow_worker = maybe(0.05),
             .duplicate = maybe(0.05)};
  if (Chance(0.3)) network.delays.most = milliseconds(200);
}

void World::MakeFleet() {
  const auto workers = static_cast<std::int32_t>(2 + rng.Below(4));
  const auto deployments = 1 + rng.Below(2);
  for (std::uint64_t d = 0; d < deployments; ++d) {
    DeploymentSpec spec = testing::MakeSpec(
        static_cast<std::int32_t>(1 + rng.Below(static_cast<std::uint64_t>(workers))));
    spec.name = absl::StrCat("d", d);
    spec.checkpoint = absl::StrCat("/models/", d);
    spec.join_timeout = seconds(4);
    spec.dispatcher_output_dtype = AnyDtype();
    specs_.push_back(spec);
    SetModel(spec.checkpoint, {.experts = 4 + static_cast<std::int32_t>(rng.Below(4)),
                               .top_k = 2,
                               .layers = 1,
                               .weights = rng.Next()});
  }
  // Where memory is short, all workers together hold everything, and most of them mostly do.
  std::int64_t bytes = 0;
  for (const auto& [checkpoint, facts] : models) bytes += facts.shape.experts * facts.ExpertBytes();
  const std::int64_t room = Chance(0.5) ? 0 : bytes / workers + bytes / 2;
  coordinator_ = std::make_unique<CoordinatorNode>(this);
  for (std::int32_t w = 0; w < workers; ++w) {
    workers_.push_back(std::make_unique<WorkerNode>(this, absl::StrCat("w", w), room));
  }
  for (std::uint64_t s = 0; s < 1 + rng.Below(3); ++s) {
    sources_.push_back(
        std::make_unique<SourceNode>(this, absl::StrCat("s", s), specs_[s % specs_.size()].name));
  }
}

void World::SetModel(const std::string& checkpoint, const testing::FactsShape& shape) {
  ModelFacts facts = HashFacts(shape);
  versions_[facts.manifest.Hash()] = shape.weights;
  for (const TensorHash& row : facts.manifest.tensors) versions_[row.sha256] = shape.weights;
  models[checkpoint] = std::move(facts);
}

std::uint64_t World::DigestOfExpert(const Plan& plan, LayerId layer, ExpertId expert) {
  const std::uint64_t version = VersionOf(plan.manifest);
  std::uint64_t& digest = digests_[{version, layer, expert}];
  if (digest == 0) {
    const ExpertWeights weights = WeightsOf(plan.shape, version, layer, expert);
    digest = DigestOf({.gate = weights.gate, .up = weights.up, .down = weights.down});
  }
  return digest;
}

std::optional<DtypeChoice> World::AnyDtype() {
  constexpr std::array kChoices{DtypeChoice::kAuto, DtypeChoice::kBf16, DtypeChoice::kInt8};
  const std::uint64_t choice = rng.Below(kChoices.size() + 1);
  return choice < kChoices.size() ? std::optional(kChoices[choice]) : std::nullopt;
}

void World::Apply(std::uint64_t weights) {
  for (DeploymentSpec& spec : specs_) {
    if (Chance(0.3)) spec.dispatcher_output_dtype = AnyDtype();
    if (weights != 0) {
      const MoeShape& shape = models.at(spec.checkpoint).shape;
      SetModel(spec.checkpoint,
               {.experts = shape.experts, .top_k = shape.top_k, .layers = 1, .weights = weights});
    }
    coordinator_->Apply(spec);
  }
}

void World::StormTick() {
  if (!storm_) return;
  const auto happens = [this](double rate) {
    const bool now_it_does = Chance(rate * 0.1);
    stats.faults += now_it_does ? 1 : 0;
    return now_it_does;
  };
  if (happens(weather.crash_coordinator)) {
    coordinator_->Crash(Chance(0.3));
    scheduler.After(Between(milliseconds(50), seconds(5)), [this] { coordinator_->Start(); });
  }
  if (happens(weather.crash_worker)) {
    WorkerNode& worker = AnyWorker();
    worker.Crash(Chance(0.3));
    scheduler.After(Between(milliseconds(20), seconds(6)), [&worker] { worker.Start(); });
  }
  if (happens(weather.leave_worker)) {
    WorkerNode& worker = AnyWorker();
    worker.Leave();
    scheduler.After(seconds(12), [&worker] { worker.Start(); });
  }
  if (happens(weather.pause_coordinator))
    coordinator_->Pause(Between(milliseconds(50), seconds(4)));
  if (happens(weather.pause_worker)) AnyWorker().Pause(Between(milliseconds(50), seconds(6)));
  if (happens(weather.break_stream)) network.BreakOne(AnyWorker().id());
  SourceNode& source = *sources_[rng.Below(sources_.size())];
  if (happens(weather.pause_source)) source.Pause(Between(milliseconds(50), seconds(3)));
  if (happens(weather.crash_source)) {
    source.Crash(Chance(0.3));
    scheduler.After(Between(milliseconds(20), seconds(4)), [&source] { source.Start(); });
  }
  if (happens(weather.cut)) {
    const NodeId other =
        Chance(0.5) ? coordinator_->id()
                    : static_cast<NodeId>(rng.Below(static_cast<std::uint64_t>(network.count())));
    network.Cut(AnyWorker().id(), other);
    scheduler.After(Between(milliseconds(100), seconds(5)), [this] { network.HealAll(); });
  }
  if (happens(weather.reapply)) Apply(Chance(0.5) ? rng.Next() : 0);
  if (happens(weather.remove)) {
    const std::size_t one = rng.Below(specs_.size());
    coordinator_->Delete(specs_[one].name, Chance(0.5));
    scheduler.After(Between(milliseconds(200), seconds(8)), [this, one] { ApplyAgain(one); });
  }
  if (happens(weather.duty)) {
    constexpr std::array kDuties{WorkerDuty::kServe, WorkerDuty::kCordoned, WorkerDuty::kDraining};
    coordinator_->SetDuty(AnyWorker().name(), kDuties[rng.Below(kDuties.size())], Chance(0.3));
  }
  scheduler.After(kStormStep, [this] { StormTick(); });
}

void World::ApplyAgain(std::size_t spec) {
  for (const DeploymentView& one : coordinator_->View().deployments) {
    if (one.spec.name != specs_[spec].name) continue;
    if (one.state != DeploymentState::kDeleting) return;
    // Its sessions would wait for ever.
    if (!storm_) coordinator_->Delete(one.spec.name, /*at_once=*/true);
    scheduler.After(milliseconds(300), [this, spec] { ApplyAgain(spec); });
    return;
  }
  coordinator_->Apply(specs_[spec]);
  scheduler.After(seconds(1), [this, spec] { ApplyAgain(spec); });
}

// Faults end, everybody is there again, the operator applies once more.
void World::Calm() {
  Trace("calm");
  storm_ = false;
  weather = {};
  network.delays = {};
  network.HealAll();
  for (NodeId id = 0; id < network.count(); ++id) network.Resume(id);
  coordinator_->Start();
  for (const auto& worker : workers_) {
    if (worker->leaving()) worker->Crash(false);
    worker->Start();
  }
  for (const auto& source : sources_) source->Start();
  for (const auto& worker : workers_) {
    coordinator_->SetDuty(worker->name(), WorkerDuty::kServe, false);
  }
  Apply(0);
  for (std::size_t spec = 0; spec < specs_.size(); ++spec) ApplyAgain(spec);
}

void World::CheckService(const std::string& when) {
  const CoordinatorView view = coordinator_->View();
  if (view.deployments.size() != specs_.size()) {
    oracles.Fail(absl::StrCat("liveness, ", when, ": a deployment is missing"));
  }
  for (const DeploymentView& deployment : view.deployments) {
    if (deployment.state == DeploymentState::kServing) continue;
    oracles.Fail(absl::StrCat("liveness, ", when, ": ", deployment.spec.name, " does not serve: ",
                              deployment.activity, "; ", deployment.problem.ToString()));
  }
}

// When everything has settled: all workers in, one epoch each, every source on it, no trace of
// anything else.
void World::CheckRest() {
  const CoordinatorView view = coordinator_->View();
  for (const DeploymentView& deployment : view.deployments) {
    if (deployment.serving == nullptr) continue;
    const Plan& plan = deployment.serving->plan;
    const auto wanted =
        std::min<std::size_t>(workers_.size(), static_cast<std::size_t>(deployment.shape.experts));
    if (plan.workers.size() != wanted && deployment.left_out.empty()) {
      oracles.Fail(absl::StrCat("at rest: ", plan.workers.size(), " of ", wanted,
                                " workers are in the plan of ", plan.deployment));
    }
    if (deployment.pending.value != 0) {
      oracles.Fail(absl::StrCat("at rest: ", plan.deployment, " is still ", deployment.activity));
    }
    for (const PlanWorker& worker : plan.workers) {
      if (!FindWorker(worker.id)->Serves({plan.deployment, plan.epoch}, deployment.serving->hash)) {
        oracles.Fail(
            absl::StrCat("at rest: ", worker.id, " does not serve the plan of ", plan.deployment));
      }
    }
    for (const auto& source : sources_) {
      if (source->deployment() == plan.deployment && !source->IsBoundTo(*deployment.serving)) {
        oracles.Fail(absl::StrCat("at rest: a source of ", plan.deployment, " is not on epoch ",
                                  plan.epoch.value));
      }
    }
  }
  for (const auto& source : sources_) source->CheckRest();
  for (const auto& worker : workers_) {
    for (const ResidentEpoch& held : worker->Resident()) {
      const bool serves = std::any_of(
          view.deployments.begin(), view.deployments.end(), [&held](const DeploymentView& d) {
            return d.serving != nullptr && d.spec.name == held.deployment &&
                   d.serving->plan.epoch == held.epoch;
          });
      if (!serves) {
        oracles.Fail(absl::StrCat("I10, at rest: ", worker->name(), " still holds ",
                                  held.deployment, " epoch ", held.epoch.value));
      }
    }
  }
}

SimResult World::Run() {
  MakeWeather();
  MakeFleet();
  const auto stop = [this] { return !oracles.violation().empty(); };
  coordinator_->Start();
  for (const auto& worker : workers_) {
    scheduler.After(Between(Duration::zero(), seconds(1)), [&worker] { worker->Start(); });
  }
  for (const auto& source : sources_) source->Start();
  scheduler.After(milliseconds(100), [this] { Apply(0); });
  storm_ = true;
  StormTick();
  const TimePoint storm_end = now() + Between(seconds(10), seconds(30));
  scheduler.RunUntil(storm_end, stop);
  if (!stop()) Calm();
  scheduler.RunUntil(storm_end + seconds(10), stop);
  if (!stop()) CheckService("10 s after the last fault");
  scheduler.RunUntil(storm_end + seconds(17), stop);
  settled_ = true;
  scheduler.RunUntil(storm_end + seconds(23), stop);
  over_ = true;
  scheduler.RunUntil(storm_end + seconds(25), stop);
  if (!stop()) CheckService("at rest");
  if (!stop()) CheckRest();
  stats.steps = scheduler.steps();
  return {oracles.violation(), stats};
}

}  // namespace switchyard::sim
