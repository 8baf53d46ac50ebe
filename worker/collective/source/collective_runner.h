// The runner of the collective binding: this source has a rank in a group that makes steps in
// lockstep (worker/device/exchange.h), one of its own or that of a worker of its process. Submit
// appends the step to the log that all ranks follow, or joins one that another source has appended,
// and enqueues this rank's part on a stream of the device (worker/collective/source_rank.h); no
// message is sent for a step.
//
// Epochs: a plan with the same workers in the same places is bound at all of them, and later steps
// name it. Any other plan needs a new group, which forms beside the steps of the former one. When a
// step fails, or a worker or another source is lost, the group has ended: its steps in flight fail,
// and a new one is formed, on the plan of then.
//
// A group is of a plan, and so is whether the source shares its worker's rank: where the plan does
// not have that worker, the source has a rank of its own.
//
// A step of more tokens than the group takes at once (CollectiveGroup::tokens_max) goes in rounds,
// each a step of the group.
//
// x, ids, weights and y are memory that the device reaches, dense, x and y at multiples of 16
// bytes, or all four are memory of the host, which Submit and Take copy. A step is not taken back
// from its group: it ends by the group's own waits, about a deadline after it begins on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/resolve/collective_group.h"
#include "core/session_messages.h"
#include "core/tracing/step_tracer.h"
#include "worker/collective/source/lockstep_trace.h"
#include "worker/collective/source/own_rank.h"
#include "worker/collective/source/source_group.h"
#include "worker/collective/source/step_places.h"
#include "worker/collective/source/step_rounds.h"
#include "worker/collective/source/step_tensors.h"
#include "worker/collective/source_rank.h"
#include "worker/device/device_backend.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_runner.h"

namespace switchyard {

struct CollectiveRunnerOptions {
  SessionChannel* channel = nullptr;      // outlives the runner
  std::shared_ptr<DeviceBackend> device;  // where the tensors lie
  std::string device_name;                // for error texts
  std::shared_ptr<SourceLane> lane;       // of the device; wakes the source
  std::shared_ptr<RankHost> host;         // the worker of this process; null: there is none
  std::string ring_dir;                   // of sockets
  std::function<void()> wake;             // from any thread
  SessionGrant grant;
  std::shared_ptr<StepTracer> tracer = std::make_shared<StepTracer>();
  std::uint32_t source = 0;      // as StepKey
  std::uint32_t steps_max = 16;  // in flight or not taken yet
  // How long this source may be behind another one's step before it takes part without tokens.
  Duration idle_after = std::chrono::milliseconds(1);
};

class CollectiveRunner final : public StepRunner {
 public:
  explicit CollectiveRunner(CollectiveRunnerOptions options);
  ~CollectiveRunner() override;

  absl::Status Start(TimePoint now) override;
  void OnPlan(const PlanUpdate& update, TimePoint now) override;
  RunnerProgress Poll(TimePoint now) override;
  // Errors also: for tensors of the host those of CheckRouting, for which elsewhere Take has those
  // of Exchange::CheckIds; kInvalidArgument (BAD_SHAPE) for tensors that are not dense or not
  // aligned, (BAD_REQUEST) when the device reaches some and not others, and for a deadline of its
  // own. A step of the host allocates pinned memory where its slot has none for so many tokens.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now) override;
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(LayerId layer) const override;
  [[nodiscard]] bool awaits_device() const override;
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const override;
  // Refuses a step that is not done.
  absl::Status Take(const StepTicket& ticket, TimePoint now) override;
  StepGraphs* graphs() override;
  // Waits for the steps in flight.
  void Close(TimePoint now) override;
  [[nodiscard]] Epoch epoch() const override { return served_.plan.epoch; }
  [[nodiscard]] RunnerStatus Status() const override;

 private:
  class Graphs;  // collective_runner_graphs.h
  struct Slot {
    bool used = false;
    std::uint32_t generation = 0;
    std::shared_ptr<SourceGroup> group;
    std::shared_ptr<const StepPlaces> places;
    Epoch epoch;
    StepRounds rounds;
    std::unique_ptr<DeviceEvent> event;   // of the stream of the group's rank
    std::uint64_t event_of = 0;           // takeovers_ when it was made
    std::unique_ptr<HostTensors> copies;  // of steps whose tensors the device does not reach
    bool copied = false;                  // this step is one
    bool begins = false;                  // a launch that has begun; nobody has its ticket yet
    LockstepTrace trace;                  // not of launches
  };
  [[nodiscard]] absl::Status CheckOpen() const;
  // A caller may take a step long after it has ended.
  void TraceEnds(TimePoint now) {
    if (traced_ == 0) return;
    for (Slot& slot : slots_) {
      if (slot.used && slot.trace.traced() && slot.event->done()) slot.trace.Done(now);
    }
  }
  // It says what became of a step that is done.
  absl::Status ResultOf(Slot& slot, const std::shared_ptr<SourceGroup>& group);
  absl::Status CopyIn(Slot& slot, StepRequest* request) const;
  // The device reads these tensors itself.
  [[nodiscard]] absl::Status CheckTensors(const StepRequest& request) const;
  // Enqueues the step with the event of its slot behind it.
  absl::Status Enqueue(const StepRequest& request, const StepRequest& part, Slot& slot,
                       RankTurn& turn);
  [[nodiscard]] absl::StatusOr<std::uint32_t> FreeSlot() const;
  [[nodiscard]] const Slot* Find(const StepTicket& ticket) const;
  [[nodiscard]] bool InFlight(const SourceGroup* group, Epoch epoch) const;
  [[nodiscard]] LoggedStep Wanted(const StepRequest& round, std::int32_t cover) const;
  [[nodiscard]] ExchangeStep PartOf(const StepRequest& round) const;
  absl::StatusOr<std::uint64_t> MakeRound(const StepRequest& round, std::optional<void*> after,
                                          RankTurn& turn, TimePoint until);
  // `after` as SourcePart.
  absl::Status MakeRounds(const StepRequest& request, std::optional<void*> after, RankTurn& turn,
                          StepRounds* rounds);
  // Whether the ids of a step that has ended were right.
  [[nodiscard]] absl::Status CheckRounds(const Slot& slot, SourceRank& rank) const;
  void Form(const PlanUpdate& on);
  bool FollowForming(TimePoint now);
  absl::Status TakeOver(const std::shared_ptr<SourceGroup>& formed);
  bool FollowPlan(TimePoint now);
  bool LookForEnd(TimePoint now);
  // Keeps the current group until its steps have ended.
  void LetGo();
  static absl::StatusOr<std::shared_ptr<const StepPlaces>> MakePlaces(SourceRank& rank,
                                                                      const Plan& plan);

  const CollectiveRunnerOptions options_;
  bool closed_ = false;
  PlanUpdate served_;                         // what steps name
  std::shared_ptr<const StepPlaces> places_;  // of it; null: in order
  std::optional<PlanUpdate> pending_;         // newer
  bool binding_ = false;                      // pending_ is being bound
  std::shared_ptr<SourceGroup> forming_;
  PlanUpdate forming_on_;
  std::optional<TimePoint> form_again_;
  Duration backoff_{};
  absl::Status last_error_;  // of forming, or why the last group has ended
  int refusals_ = 0;         // of groups that cannot be
  bool was_ready_ = false;
  absl::Status fatal_;
  std::vector<Epoch> former_epochs_;  // bound in the current group, unused now
  // Groups whose steps may still run: all that the stream held when they ended.
  struct Former {
    std::shared_ptr<SourceGroup> group;
    std::unique_ptr<DeviceEvent> ended;
  };
  std::vector<Former> former_;
  std::shared_ptr<SourceGroup> current_;  // whose steps this source makes; null: none
  std::uint64_t takeovers_ = 0;           // groups that were current
  std::vector<Slot> slots_;
  std::uint64_t last_step_ = 0;     // of this session, for traces
  std::uint32_t traced_ = 0;        // steps in slots that are
  std::unique_ptr<Graphs> graphs_;  // null: none has been opened
};

}  // namespace switchyard
