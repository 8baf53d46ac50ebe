// The whole control plane in one thread: a coordinator with its disk, workers, sources, the network
// between them, and the faults that one seed brings. What a seed does is the same every time.
//
// Nodes are real code (Coordinator, Agent, EpochStager, ExpertEngine, P2pRunner) with the
// world's own disk, wires, checkpoints and clock around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"

#include "coordinator/spec/deployment.h"
#include "coordinator/spec/options.h"
#include "coordinator/store/memory_store.h"
#include "core/rng.h"
#include "tests/sim/hash_experts.h"
#include "tests/sim/network.h"
#include "tests/sim/oracles.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_transport.h"

namespace switchyard::sim {

struct SimOptions {
  std::uint64_t seed = 1;
  // Given a line for each thing that happens; may be empty.
  std::function<void(const std::string&)> trace = nullptr;
};

// How much was tried: a run without faults proves nothing.
struct SimStats {
  std::uint64_t steps = 0;
  int epochs_served = 0;
  int aborts = 0;
  int coordinator_starts = 0;
  int worker_starts = 0;
  int sessions = 0;
  int switches = 0;  // sessions that went from one epoch to the next
  int faults = 0;
  int source_starts = 0;
  int steps_submitted = 0;
  int steps_done = 0;
  int int8_steps_done = 0;  // of these
  int steps_failed = 0;
};

struct SimResult {
  std::string violation;  // empty: all is well
  SimStats stats;
};

// What the seed chose: which faults, how often. Rates are for each second of the stormy part.
struct Weather {
  double crash_coordinator = 0;
  double crash_worker = 0;
  double leave_worker = 0;
  double pause_coordinator = 0;
  double pause_worker = 0;
  double break_stream = 0;
  double cut = 0;
  double reapply = 0;
  double remove = 0;  // a deployment, which is applied again some time later
  double duty = 0;    // another one of a worker
  double crash_source = 0;
  double pause_source = 0;
  double nack = 0;          // of each PREPARE
  double bit_flip = 0;      // of each PREPARE, in the weights that it loads
  double slow_staging = 0;  // of each PREPARE
  double bad_write = 0;     // of each write
  double slow_disk = 0;     // of each write
  double damage = 0;        // of each PREPARE and COMMIT, on the way
  double slow_worker = 0;   // of each look of a worker at its rings
  double duplicate = 0;     // of each frame
};

// The last `lines` things that a seed does, for the report of a violation.
std::string LastEvents(SimOptions options, std::size_t lines);

class CoordinatorNode;
class WorkerNode;
class SourceNode;

class World {
 public:
  explicit World(SimOptions options);
  ~World();

  SimResult Run();

  // For the nodes.
  Scheduler scheduler;
  SeededRng rng;
  Network network;
  MemoryStore disk;  // the coordinator's; outlives its crashes
  CoordinatorOptions coordinator_options;
  Oracles oracles;
  SimFabric fabric;
  HashDevice device;
  Weather weather;  // calm: all zero
  SimStats stats;
  std::map<std::string, ModelFacts> models;  // by checkpoint, as it is now

  [[nodiscard]] TimePoint now() const { return scheduler.now(); }
  [[nodiscard]] const SimOptions& options() const { return options_; }
  [[nodiscard]] bool Chance(double probability) { return rng.Uniform() < probability; }
  [[nodiscard]] Duration Between(Duration least, Duration most);
  [[nodiscard]] CoordinatorNode& coordinator() { return *coordinator_; }
  // The version of the checkpoint that holds that tensor, or whose manifest has that hash.
  [[nodiscard]] std::uint64_t VersionOf(const Sha256Digest& digest) const {
    return versions_.at(digest);
  }
  [[nodiscard]] std::uint64_t DigestOfExpert(const Plan& plan, LayerId layer, ExpertId expert);
  // Every step must succeed.
  [[nodiscard]] bool settled() const { return settled_; }
  // No step is submitted any more.
  [[nodiscard]] bool over() const { return over_; }
  // nullptr when no worker has that name.
  [[nodiscard]] WorkerNode* FindWorker(const std::string& id);

  template <typename... Args>
  void Trace(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (options_.trace != nullptr) Print(absl::StrFormat(format, args...));
  }

 private:
  void Print(const std::string& line) const;
  void MakeWeather();
  void MakeFleet();
  void StormTick();
  // Until the deployment exists and nobody deletes it.
  void ApplyAgain(std::size_t spec);
  void Calm();
  // `weights`: of another version of the model; 0: as they are. The wire dtype may change too.
  void Apply(std::uint64_t weights);
  std::optional<DtypeChoice> AnyDtype();
  void SetModel(const std::string& checkpoint, const testing::FactsShape& shape);
  void CheckService(const std::string& when);
  void CheckRest();
  [[nodiscard]] WorkerNode& AnyWorker();

  const SimOptions options_;
  std::unique_ptr<CoordinatorNode> coordinator_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::vector<std::unique_ptr<SourceNode>> sources_;
  std::vector<DeploymentSpec> specs_;
  absl::flat_hash_map<Sha256Digest, std::uint64_t> versions_;
  absl::flat_hash_map<std::tuple<std::uint64_t, LayerId, ExpertId>, std::uint64_t> digests_;
  bool storm_ = false;
  bool settled_ = false;
  bool over_ = false;
};

}  // namespace switchyard::sim
