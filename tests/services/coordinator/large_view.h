// A coordinator's state of the largest size that the live page is made for: 61 layers x 256 experts
// x 32 workers, with ten minutes of load. Random, and uneven as real loads are.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "coordinator/history/journal.h"
#include "coordinator/history/load_history.h"
#include "coordinator/view.h"
#include "core/base/wall_time.h"
#include "core/plan.h"
#include "core/rng.h"
#include "services/coordinator/live_page.h"

namespace switchyard::testing {

inline constexpr std::int32_t kLargeLayers = 61;
inline constexpr std::int32_t kLargeExperts = 256;
inline constexpr std::int32_t kLargeWorkers = 32;
// Among them: one whose steps take long, and one that does not report how long they take.
inline constexpr std::int32_t kSlowWorker = 13;
inline constexpr std::int32_t kOldWorker = 30;

class LargeView {
 public:
  explicit LargeView(std::int32_t samples = 300) : rng_(61), slow_from_(samples / 2) {
    MakePlan();
    MakeWorkers();
    MakeDeployment();
    MakeJournal();
    for (std::int32_t i = 0; i < samples; ++i) AddLoad(i);
  }

  // As long as this lives.
  [[nodiscard]] LiveSources Sources() const {
    return {.view = [this] { return view; },
            .events = [this](std::uint64_t after) { return journal.After(after); },
            .sessions = [this] { return sessions; },
            .load = [this](const std::string& name,
                           const LoadQuery& query) { return load.View(name, query, now); }};
  }
  // Rows of one more interval, which is the newest then.
  void AddLoad(std::int32_t interval) {
    now = kStart + interval * std::chrono::seconds(2) + std::chrono::milliseconds(1500);
    LoadShape shape{.layers = {}, .experts = kLargeExperts};
    for (std::int32_t i = 0; i < kLargeLayers; ++i) shape.layers.push_back(LayerId{i});
    // Some experts are hot, and what is hot wanders.
    for (const PlanWorker& worker : plan.workers) {
      LoadReport report{.deployment = "chat", .epoch = plan.epoch, .experts = {}};
      const WorkerOrdinal self = *plan.FindWorker(worker.id);
      for (const LayerPlacement& layer : plan.layers) {
        for (const PhysicalExpert& one : layer.experts) {
          if (one.worker != self) continue;
          const double wave =
              std::sin(0.02 * interval + one.expert.value * 0.9 + layer.layer.value);
          const double hot = (one.expert.value * 37 + layer.layer.value * 11) % 61 == 0 ? 6.0 : 1.0;
          const double rows = hot * (60 + 40 * wave) + static_cast<double>(rng_.Below(40));
          report.experts.push_back({layer.layer, one.expert, static_cast<std::uint32_t>(rows)});
        }
      }
      const WallTime at =
          ReadWallTime() - std::chrono::seconds(600) + interval * std::chrono::seconds(2);
      load.Add(shape, worker.id, report, now, at);
      // One worker is of an older build.
      if (self.value != kOldWorker) {
        load.AddTimes("chat", shape, worker.id, Times(self, interval), now, at);
      }
    }
  }

  static std::string SlowWorkerName() { return WorkerName(kSlowWorker); }

  Plan plan;
  CoordinatorView view;
  Journal journal{1024};
  std::vector<SessionView> sessions;
  LoadHistory load{{}, kStart};
  TimePoint now = kStart;

 private:
  static constexpr TimePoint kStart{std::chrono::seconds(100)};

  // Decode and prefill; one worker became slower than the others half way, and its queue longer.
  std::vector<WorkTimes> Times(WorkerOrdinal worker, std::int32_t interval) {
    std::vector<WorkTimes> all{{.kind = WorkKind::kDecode}, {.kind = WorkKind::kPrefill}};
    const auto about = [&](std::uint64_t microseconds) {
      return std::chrono::microseconds(microseconds * (60 + rng_.Below(80)) / 100);
    };
    const std::uint64_t slow = worker.value == kSlowWorker && interval >= slow_from_ ? 8 : 1;
    for (int i = 0; i < 200; ++i) {
      all[0].step.Observe(about(400 * slow));
      all[0].queue.Observe(about(60 * slow));
      if (i % 20 != 0) continue;
      all[1].step.Observe(about(30'000 * slow));
      all[1].queue.Observe(about(4'000 * slow));
    }
    return all;
  }

  static std::string WorkerName(std::int32_t i) { return absl::StrCat("moe-", i / 8, "-", i % 8); }

  void MakePlan() {
    plan.deployment = "chat";
    plan.model = "deepseek-v3";
    plan.epoch = Epoch{12};
    plan.shape = {.hidden = 7168, .intermediate = 2048, .experts = kLargeExperts, .top_k = 8};
    for (std::int32_t i = 0; i < kLargeWorkers; ++i) {
      plan.workers.push_back({.id = WorkerName(i),
                              .incarnation = rng_.NextId<Incarnation>(),
                              .endpoint = absl::StrCat("10.0.", i / 8, ".", 10 + i % 8, ":7411"),
                              .device = DeviceKind::kCuda,
                              .kernel_family = "cuda_sm90"});
    }
    for (std::int32_t id = 0; id < kLargeLayers; ++id) {
      LayerPlacement layer{.layer = LayerId{id}, .experts = {}};
      std::vector<std::int32_t> slots(kLargeWorkers);
      for (std::int32_t w = 0; w < kLargeWorkers; ++w) {
        for (std::int32_t e = 0; e < kLargeExperts; ++e) {
          const bool home = (e / 8 + id / 20) % kLargeWorkers == w;
          const bool copy = e % 64 == id % 64 && (e / 8 + 5) % kLargeWorkers == w;
          if (!home && !copy) continue;
          layer.experts.push_back(
              {ExpertId{e}, WorkerOrdinal{w}, SlotId{slots[static_cast<std::size_t>(w)]++}});
        }
      }
      plan.layers.push_back(std::move(layer));
      for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
        for (const DeviceKind source : {DeviceKind::kCpu, DeviceKind::kCuda}) {
          plan.configs.push_back(Config(id, phase, source));
        }
      }
    }
  }
  static DispatchConfig Config(std::int32_t layer, Phase phase, DeviceKind source) {
    DispatchConfig config;
    config.layer = LayerId{layer};
    config.phase = phase;
    config.edge = {source, DeviceKind::kCuda};
    config.mode = phase == Phase::kDecode ? DispatchMode::kLowLatency : DispatchMode::kNormal;
    config.wire_dtype = layer == 60 ? DispatchDtype::kBf16 : DispatchDtype::kFp8;
    config.scheme = layer == 60 ? QuantScheme::kNone : QuantScheme::kFp8Block;
    config.max_tokens_per_step = phase == Phase::kDecode ? 512 : 0;
    config.trail = {layer == 60 ? "bf16: a draft layer without a quant config"
                                : "fp8: scheme fp8_block takes fp8 rows",
                    "every worker of the kind takes it", "limits of device profile cuda_sm90 hold"};
    return config;
  }
  void MakeWorkers() {
    for (const PlanWorker& worker : plan.workers) {
      WorkerView one;
      one.id = worker.id;
      one.incarnation = worker.incarnation;
      one.endpoint = worker.endpoint;
      one.capabilities.device = DeviceKind::kCuda;
      one.capabilities.device_profile = "cuda_sm90";
      one.capabilities.kernel_family = "cuda_sm90";
      one.capabilities.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8,
                                      DispatchDtype::kInt8};
      one.capabilities.schemes = {QuantScheme::kNone, QuantScheme::kFp8Block};
      one.capabilities.transports = {"shm", "tcp"};
      one.capabilities.max_top_k = 32;
      one.capabilities.weight_bytes_max = std::int64_t{64} << 30;
      one.lease_left = std::chrono::milliseconds(1500);
      one.progress = 1 + rng_.Below(1000000);
      one.experts = 500;
      one.resident = {{"chat", plan.epoch, {}, true}};
      view.workers.push_back(std::move(one));
    }
    view.workers[5].state = WorkerState::kUnreachable;
    view.workers[5].problem = "unreachable: nobody answers at 10.0.0.15:7411; open its port";
    view.workers[9].state = WorkerState::kDraining;
    view.workers[17].capabilities.wire_dtypes.pop_back();
  }
  void MakeDeployment() {
    DeploymentView chat;
    chat.spec.name = "chat";
    chat.spec.model = "deepseek-v3";
    chat.spec.checkpoint = "/models/deepseek-v3";
    chat.shape = plan.shape;
    for (const LayerPlacement& layer : plan.layers) chat.layers.push_back(layer.layer);
    chat.state = DeploymentState::kServing;
    chat.current = true;
    chat.revision = 3;
    chat.served_revision = 3;
    chat.serving = std::make_shared<const PlanUpdate>(PlanUpdate{plan, HashOf(plan)});
    chat.activity = "serving epoch 12";
    chat.sessions = 40;
    DeploymentView second = chat;
    second.spec.name = "batch";
    second.serving = nullptr;
    second.state = DeploymentState::kPending;
    second.activity = "waits for 8 workers, has 0";
    view.deployments = {second, chat};
    for (std::int32_t i = 0; i < chat.sessions; ++i) {
      sessions.push_back({.name = absl::StrCat("5e55", 1000 + i),
                          .deployment = "chat",
                          .phase = i % 2 == 0 ? Phase::kPrefill : Phase::kDecode,
                          .mode = i % 2 == 0 ? DispatchMode::kNormal : DispatchMode::kLowLatency,
                          .source = DeviceKind::kCuda,
                          .peer = absl::StrCat("ipv4:10.1.0.", i, ":51234"),
                          .opened = Epoch{9},
                          .epoch = plan.epoch,
                          .age = std::chrono::seconds(40 + i * 977),
                          .binding = BindingChoice::kP2p,
                          .binding_reason = "a session of its own"});
    }
  }
  void MakeJournal() {
    const auto say = [this](JournalObject object, const std::string& name, const char* reason,
                            const std::string& message, LogLevel level = LogLevel::kInfo) {
      JournalEntry entry;
      entry.object = object;
      entry.name = name;
      entry.reason = reason;
      entry.message = message;
      entry.level = level;
      journal.Add(entry, ReadWallTime() - std::chrono::seconds(3600) +
                             static_cast<std::int64_t>(++said_) * std::chrono::seconds(3));
    };
    for (std::int32_t i = 0; i < 900; ++i) {
      say(JournalObject::kWorker, WorkerName(i % kLargeWorkers), "Joined",
          absl::StrCat("joined, incarnation ", i, ", 0 epochs resident"));
    }
    for (std::int32_t epoch = 1; epoch <= 12; ++epoch) {
      const std::string what = absl::StrCat("epoch ", epoch);
      say(JournalObject::kDeployment, "chat", "EpochPreparing",
          absl::StrCat(what, " is prepared on 32 workers; worker ", WorkerName(epoch),
                       " added; 488 experts move"));
      if (epoch == 7) {
        say(JournalObject::kDeployment, "chat", "EpochGivenUp",
            absl::StrCat(what,
                         " is given up: worker moe-2-1: layer 17, expert 3: the weights have "
                         "another hash"),
            LogLevel::kWarn);
        continue;
      }
      say(JournalObject::kDeployment, "chat", "EpochServing",
          absl::StrCat(what, " serves on 32 workers"));
    }
    say(JournalObject::kWorker, WorkerName(5), "Unreachable",
        "nobody answers at 10.0.0.15:7411; open its port", LogLevel::kWarn);
  }

  SeededRng rng_;
  const std::int32_t slow_from_;
  std::int32_t said_ = 0;
};

}  // namespace switchyard::testing
