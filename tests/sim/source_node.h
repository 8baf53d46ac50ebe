// A source's process: the real P2pRunner and PlanWatch over the simulated wires, and an engine that
// submits random steps and compares every sum with the one that it computes itself.
//
// What it holds as well: a step ends by its deadline; it fails with UNAVAILABLE or not at all; its
// output is not written after it failed; one that awaits a lost worker does not wait for its
// deadline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/session_messages.h"
#include "tests/sim/network.h"
#include "tests/sim/sim_channel.h"
#include "tests/sim/sim_transport.h"
#include "worker/source/p2p/p2p_runner.h"
#include "worker/source/plan_watch.h"

namespace switchyard::sim {

class World;

// The scheduler's time.
class SimClock final : public Clock {
 public:
  explicit SimClock(const Scheduler* scheduler) : scheduler_(scheduler) {}
  [[nodiscard]] TimePoint Now() const override { return scheduler_->now(); }

 private:
  const Scheduler* scheduler_;
};

class SourceNode final : private FrameSink {
 public:
  SourceNode(World* world, std::string name, std::string deployment);
  ~SourceNode() override;

  void Start();
  void Crash(bool silent);
  void Pause(Duration for_how_long);
  [[nodiscard]] NodeId id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool alive() const { return transport_ != nullptr; }
  // At rest: bound to this plan.
  [[nodiscard]] bool IsBoundTo(const PlanUpdate& plan) const;
  // All credits are there.
  void CheckRest() const;
  [[nodiscard]] const std::string& deployment() const { return deployment_; }

 private:
  // A step from its submission until a while after its end.
  struct Job {
    StepTicket ticket;
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
    std::vector<Bf16> x;
    std::vector<float> wanted;
    std::vector<float> y;    // sessions with F32
    std::vector<Bf16> y_16;  // sessions with BF16
    std::vector<PlanWorker> workers;
    bool int8 = false;  // its rows on the wire
    TimePoint submitted{};
    TimePoint due{};
    bool ended = false;
    TimePoint forget_at{};  // of one that failed
  };

  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override;
  void OnLinkDown(Link& link, const absl::Status& why) override;

  void Open();
  void OnGrant(const absl::StatusOr<SessionGrant>& grant);
  void StartAgain();
  void SchedulePoll();
  void Poll();
  void Engine();
  void Submit();
  void Fill(Job* job, const Plan& plan);
  void Expect(Job* job, const Plan& plan) const;
  void Collect();
  void End(Job* job, const absl::Status& status);
  void CheckCredits() const;
  void CheckFailure(const Job& job, const absl::Status& status);
  [[nodiscard]] bool Untouched(const Job& job) const;

  World* world_;
  NodeId id_;
  const std::string name_;
  const std::string deployment_;
  SimClock clock_;
  SimChannel channel_;
  Incarnation incarnation_;
  std::unique_ptr<SimTransport> transport_;
  std::unique_ptr<P2pRunner> runner_;
  std::unique_ptr<PlanWatch> watch_;  // lives and dies with the runner
  std::vector<std::unique_ptr<Job>> jobs_;
  std::map<Incarnation, TimePoint> lost_;  // workers, and when their link broke
  std::uint64_t attempt_ = 0;              // to open a session: answers to older ones do not count
  TimePoint opened_at_{};
  bool reopen_ = false;  // the session has no future
  bool poll_asked_ = false;
};

}  // namespace switchyard::sim
