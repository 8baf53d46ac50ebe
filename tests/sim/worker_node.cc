#include "tests/sim/worker_node.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/plan.h"
#include "tests/sim/coordinator_node.h"
#include "tests/sim/hash_experts.h"
#include "tests/sim/world.h"
#include "tests/testing/model_facts.h"

namespace switchyard::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

WorkerNode::WorkerNode(World* world, std::string name, std::int64_t weight_bytes_max)
    : world_(world),
      id_(world->network.Add(name)),
      name_(std::move(name)),
      weight_bytes_max_(weight_bytes_max) {}

void WorkerNode::Start() {
  if (alive()) return;
  ++world_->stats.worker_starts;
  world_->network.Start(id_);
  incarnation_ = world_->rng.NextId<Incarnation>();
  leaving_ = false;
  AgentOptions options;
  options.worker_id = name_;
  options.incarnation = incarnation_;
  options.endpoint = name_;
  options.capabilities = testing::MakeCapabilities(weight_bytes_max_);
  options.capabilities.wire_dtypes = world_->device.capabilities().wire_dtypes;
  options.capabilities.schemes = world_->device.capabilities().schemes;
  agent_ = std::make_unique<Agent>(options, &world_->rng, world_->now());
  MakeEngine();
  world_->Trace("%s starts", name_);
  ScheduleTick();
}

void WorkerNode::Crash(bool silent) {
  if (!alive()) return;
  world_->Trace("%s crashes%s", name_, silent ? " with its machine" : "");
  world_->network.Crash(id_, silent);
  agent_.reset();
  engine_.reset();
  transport_.reset();
  attached_.clear();
  epochs_.clear();
  link_.reset();
  stream_.reset();
}

void WorkerNode::Pause(Duration for_how_long) {
  if (!alive()) return;
  world_->Trace("%s pauses", name_);
  world_->network.Pause(id_, for_how_long);
}

void WorkerNode::Leave() {
  if (!alive()) return;
  world_->Trace("%s is asked to leave", name_);
  leaving_ = true;
  world_->network.AtNode(id_, Duration::zero(), [this] { Step(LeaveRequested{}); });
}

void WorkerNode::Step(const AgentEvent& event) {
  if (!alive()) return;
  for (const AgentEffect& effect : agent_->Step(event, world_->now())) {
    if (alive()) std::visit([this](const auto& e) { Perform(e); }, effect);
  }
  if (alive()) ScheduleTick();
}

void WorkerNode::ScheduleTick() {
  const TimePoint due = agent_->NextDeadline();
  if (due == TimePoint::max()) return;
  const std::uint64_t mine = ++tick_;
  world_->network.AtNode(id_, std::max(due - world_->now(), Duration::zero()), [this, mine] {
    if (mine == tick_) Step(AgentTick{{.progress = mine}});
  });
}

void WorkerNode::Perform(const DialChannel& effect) {
  dial_ = effect.dial;
  stream_.reset();
  const std::uint64_t life = world_->network.node(id_).life;
  CoordinatorNode& coordinator = world_->coordinator();
  link_ = world_->network.Dial(
      id_, coordinator.id(), [this, life, dial = dial_, &coordinator](auto link) {
        const StreamId stream = coordinator.OpenStream(link, [this, dial](const auto& message) {
          if (const auto* commit = std::get_if<Commit>(&message);
              commit != nullptr && dial == dial_) {
            world_->oracles.WorkerHearsCommit(Me(), *commit);
          }
          Step(ChannelMessage{dial, message});
        });
        link->Send(1, [this, life, dial, stream] {
          if (world_->network.node(id_).life != life || dial != dial_) return;
          stream_ = stream;
          Step(ChannelUp{dial});
        });
      });
  link_->on_down[0] = [this, dial = dial_](const absl::Status& why) {
    Step(ChannelDown{dial, why});
  };
}

void WorkerNode::Perform(const SendToCoordinator& effect) {
  if (link_ == nullptr || !stream_) return;
  link_->Send(0, [this, stream = *stream_, message = effect.message] {
    world_->coordinator().Hear(stream, message);
  });
}

void WorkerNode::Perform(const HangUpChannel& /*effect*/) {
  if (link_ != nullptr) link_->Close(0, absl::OkStatus());
  link_.reset();
  stream_.reset();
}

void WorkerNode::Perform(const StageEpoch& effect) {
  const EpochKey key{effect.prepare.plan.deployment, effect.prepare.plan.epoch};
  epochs_[key].prepare = effect.prepare;
  const auto of_deployment = static_cast<std::size_t>(std::count_if(
      epochs_.begin(), epochs_.end(),
      [&key](const auto& entry) { return entry.first.deployment == key.deployment; }));
  world_->oracles.WorkerHolds(Me(), key.deployment, of_deployment);
  const bool slow = world_->Chance(world_->weather.slow_staging);
  const Duration takes = slow ? world_->Between(seconds(1), seconds(6))
                              : world_->Between(milliseconds(5), milliseconds(200));
  world_->network.AtNode(id_, takes, [this, key] { FinishStaging(key); });
}

void WorkerNode::FinishStaging(const EpochKey& key) {
  const auto it = epochs_.find(key);
  if (it == epochs_.end()) return;  // Dropped meanwhile.
  absl::Status status = absl::OkStatus();
  if (world_->Chance(world_->weather.nack)) {
    ++world_->stats.faults;
    status = MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "no memory");
  } else {
    status = Stage(&it->second);
  }
  if (status.ok()) {
    world_->oracles.WorkerStages(Me(), key, HashOf(it->second.prepare.plan));
  } else {
    epochs_.erase(it);
  }
  Step(EpochStaged{key, status});
}

absl::Status WorkerNode::Stage(HeldEpoch* held) {
  const bool bit_flips = world_->Chance(world_->weather.bit_flip);
  if (bit_flips) ++world_->stats.faults;
  StagerOptions options;
  options.worker_id = name_;
  options.incarnation = incarnation_;
  options.device = &world_->device;
  options.batch.pairs_max = 16;
  options.open_weights = [this, held, bit_flips](absl::string_view /*checkpoint*/,
                                                 WeightCheck check) {
    const std::uint64_t version = world_->VersionOf(check.expected.at(0).sha256);
    return std::make_unique<HashSource>(held->prepare.plan.shape, version, std::move(check),
                                        bit_flips);
  };
  std::vector<std::shared_ptr<const EpochRuntime>> resident;
  for (const auto& [key, epoch] : epochs_) {
    if (epoch.staged.runtime != nullptr) resident.push_back(epoch.staged.runtime);
  }
  absl::StatusOr<StagedEpoch> staged = EpochStager(options).Stage(
      {.prepare = &held->prepare, .resident = resident, .stop = {}, .on_progress = nullptr});
  if (staged.ok()) held->staged = *std::move(staged);
  return staged.status();
}

// The engine serves the same experts under this epoch's number.
void WorkerNode::Perform(const ActivateEpoch& effect) {
  HeldEpoch& held = epochs_[effect.key];
  held.active = true;
  world_->oracles.WorkerActivates(Me(), effect.key, HashOf(held.prepare.plan),
                                  held.staged.runtime != nullptr);
  if (held.staged.runtime == nullptr) return;
  auto runtime = std::make_shared<EpochRuntime>(*held.staged.runtime);
  for (LayerRuntime& layer : runtime->layers) {
    for (ExpertSlot& slot : layer.slots) {
      slot.weights = static_cast<const HashExpert&>(*slot.weights).Under(effect.key.epoch);
    }
    std::vector<TableEntry> entries;
    for (const ExpertSlot& slot : layer.slots) entries.push_back({slot.expert, slot.weights});
    layer.table = *world_->device.MakeTable(std::move(entries));
  }
  engine_->Activate({.runtime = std::move(runtime), .memory = std::move(held.staged.memory)});
}

void WorkerNode::Perform(const RetireEpoch& effect) {
  engine_->Retire(effect.key.deployment, effect.key.epoch, world_->now(), [this, key = effect.key] {
    world_->network.AtNode(id_, Duration::zero(), [this, key] { Step(EpochUnbound{key}); });
  });
  SchedulePoll();
}

void WorkerNode::Perform(const ShortenRetire& effect) {
  engine_->ShortenRetire(effect.key.deployment, effect.key.epoch, world_->now(), effect.within);
  SchedulePoll();
}

void WorkerNode::Perform(const DropEpoch& effect) {
  const auto bound = std::count_if(attached_.begin(), attached_.end(), [&](const auto& entry) {
    return entry.second.bound.contains(effect.key);
  });
  world_->oracles.WorkerFrees(Me(), effect.key, static_cast<std::size_t>(bound));
  engine_->Drop(effect.key.deployment, effect.key.epoch);
  epochs_.erase(effect.key);
}

void WorkerNode::Perform(const AgentFinished& effect) {
  world_->Trace("%s ends: %s", name_, effect.why.ToString());
  // The process ends in its own time; what it held goes with it.
  world_->network.AtNode(id_, Duration::zero(), [this] { Crash(false); });
}

void WorkerNode::Perform(const AgentReport& effect) { world_->Trace("%s: %s", name_, effect.text); }

void WorkerNode::MakeEngine() {
  transport_ =
      std::make_unique<SimTransport>(world_, id_, incarnation_, [this] { SchedulePoll(); });
  ExpertEngineOptions options;
  options.identity = {.worker_id = name_, .incarnation = incarnation_};
  options.on_closed = [this](AttachmentId number, const absl::Status& why) {
    const auto it = attached_.find(number);
    if (it == attached_.end()) return;
    it->second.link->Close(1, why);
    attached_.erase(it);
  };
  options.on_overdue = [this](AttachmentId number, const EpochRuntime& epoch) {
    const auto it = attached_.find(number);
    if (it == attached_.end()) return;
    it->second.bound.erase({it->second.deployment, epoch.epoch()});
  };
  engine_ = std::make_unique<ExpertEngine>(std::move(options), transport_.get(),
                                           *ExpertStreams::Create(&world_->device, {}));
  poll_asked_ = false;
}

void WorkerNode::SchedulePoll() {
  if (std::exchange(poll_asked_, true)) return;
  const bool slow = world_->Chance(world_->weather.slow_worker);
  if (slow) ++world_->stats.faults;
  const Duration after = slow ? world_->Between(milliseconds(20), milliseconds(2500))
                              : world_->Between(microseconds(5), microseconds(400));
  world_->network.AtNode(id_, after, [this] { Poll(); });
}

void WorkerNode::Poll() {
  poll_asked_ = false;
  while (engine_->Poll(world_->now())) {
  }
  const std::optional<TimePoint> due = engine_->NextDeadline();
  if (!due) return;
  const Duration after = std::max<Duration>(*due - world_->now(), milliseconds(1));
  world_->network.AtNode(id_, after, [this] { SchedulePoll(); });
}

void WorkerNode::Attach(const std::shared_ptr<Wire>& link, const AttachRequest& order,
                        const AttachAnswers& answers) {
  const absl::StatusOr<AttachGrant> grant = engine_->Attach(order);
  if (!grant.ok()) return link->Close(1, grant.status());
  const AttachmentId number = grant->request_ring.attachment;
  const EpochKey key{order.deployment, order.epoch};
  world_->oracles.WorkerBinds(Me(), key, order.hash);
  attached_[number] = {link, answers, order.deployment, {key}};
  link->on_down[1] = [this, number](const absl::Status&) {
    if (attached_.erase(number) > 0) engine_->Close(number);
  };
  link->Send(1, [answers, grant = *grant] { answers.attached(grant); });
}

WorkerNode::Attached* WorkerNode::Find(const std::shared_ptr<Wire>& link, AttachmentId* number) {
  for (auto& [at, attached] : attached_) {
    if (attached.link != link) continue;
    *number = at;
    return &attached;
  }
  return nullptr;
}

void WorkerNode::Bind(const std::shared_ptr<Wire>& link, const BindRequest& order) {
  AttachmentId number;
  Attached* attached = Find(link, &number);
  if (attached == nullptr) return;  // It is being told that it is closed.
  const absl::Status bound = engine_->Bind(number, order);
  if (bound.ok()) {
    const EpochKey key{attached->deployment, order.epoch};
    world_->oracles.WorkerBinds(Me(), key, order.hash);
    attached->bound.insert(key);
  }
  link->Send(1, [answers = attached->answers, epoch = order.epoch, bound] {
    answers.bound(epoch, bound);
  });
}

void WorkerNode::Release(const std::shared_ptr<Wire>& link, const ReleaseRequest& order) {
  AttachmentId number;
  Attached* attached = Find(link, &number);
  if (attached == nullptr) return;
  attached->bound.erase({attached->deployment, order.epoch});
  engine_->Release(number, order).IgnoreError();
}

std::vector<ResidentEpoch> WorkerNode::Resident() const {
  return alive() ? agent_->Resident() : std::vector<ResidentEpoch>{};
}

bool WorkerNode::Serves(const EpochKey& key, const PlanHash& hash) const {
  const auto it = epochs_.find(key);
  return it != epochs_.end() && it->second.active && HashOf(it->second.prepare.plan) == hash;
}

}  // namespace switchyard::sim
