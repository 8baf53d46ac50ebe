// A source's rank makes its part of the group's steps, in the order of the log: on a stream of its
// own (source/own_rank.h), or, where the source shares the rank of a worker in its process, on the
// worker's stream and together with the worker's part (expert/hosted_rank.h).
//
//   SourceRank::Use -> { RankTurn::MakeStep }*, events of its stream -> Retire
//
// Graphs: the steps of RecordedSteps run whenever a graph of the caller's does, without the log. A
// launch is one entry of the log in their place, so that they are in order with all others; every
// rank of the group launches. Only ranks that workers share have graphs, since a worker apart has
// no one to launch its graphs.
//
// Steps that another source appended are this one's too: MakeStep joins the next step of the group
// if it is of the same layer and epoch and large enough, and makes those before it without tokens.
// A source that does not come in time takes part without tokens by itself.
//
// Thread-safe, but for what RankTurn says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/group_messages.h"
#include "core/ids.h"
#include "worker/collective/step_log.h"
#include "worker/device/device_backend.h"
#include "worker/device/exchange.h"

namespace switchyard {

// Steps that a graph makes, in order.
struct RecordedSteps {
  std::vector<std::shared_ptr<const ExpertTable>> experts;  // of each step

  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(experts.size()); }
};

// A source's part of a step. Cover, layer, codecs and experts are the rank's to fill in.
struct SourcePart {
  ExchangeStep step;
  // The step begins when all is complete that this stream of the caller's holds, as
  // Stream::WaitFor knows it. Not set: at once.
  std::optional<void*> after = std::nullopt;
};

// A rank's stream and its place in the log, for as long as one Use of it runs.
class RankTurn {
 public:
  // For events, copies, and the order with streams of the caller's.
  [[nodiscard]] virtual Stream& stream() = 0;
  // Errors: kResourceExhausted (NO_CREDITS) if the stream takes no call by `until`.
  virtual absl::Status WaitForRoom(TimePoint until) = 0;
  // Finds the group's step for `wanted`, or appends it, and enqueues this rank's part. Waits until
  // `until`, and a millisecond, for room in the stream and for its turn; the rank may make other
  // steps meanwhile. Returns the step's number in the group, from 0. Errors: kResourceExhausted
  // (NO_CREDITS) without room, when the workers are thousands of steps behind, and where this
  // process has to make another step or launch first: nothing has happened; those of
  // Stream::WaitFor: the step was made without tokens; all others: the group has ended.
  virtual absl::StatusOr<std::uint64_t> MakeStep(const LoggedStep& wanted, const SourcePart& part,
                                                 TimePoint until) = 0;
  // Records this rank's part of `step` at the end of `graph`, by Exchange::Record: `part` as
  // MakeStep's. Errors: those of Record; of the layer or the epoch.
  virtual absl::Status Record(void* capturing, const LoggedStep& step, const ExchangeStep& part,
                              RecordedSteps* graph);
  // Finds the group's launch of so many steps, or appends it, makes all steps before it, and has
  // what `foreign` gets from now on wait for them. The rank makes no other step before EndLaunch,
  // for as long as the group's patience. Errors: as MakeStep; those of Stream::Precede: nothing has
  // happened; kFailedPrecondition (BAD_CONFIG), which ends the group, if another rank launches
  // another number of steps; kUnavailable (NOT_READY) for a group that has made as many steps as
  // the device tells apart.
  virtual absl::Status BeginLaunch(const std::shared_ptr<const RecordedSteps>& graph,
                                   const LoggedStep& wanted, void* foreign, TimePoint until);
  // The graph is in `foreign`: later steps wait for it. Returns the number of its first step.
  // Errors: kUnavailable (WORKER_LOST) if it came too late; those of the stream.
  virtual absl::StatusOr<std::uint64_t> EndLaunch(void* foreign);

 protected:
  ~RankTurn() = default;
};

class SourceRank {
 public:
  virtual ~SourceRank() = default;

  // Runs `work` while nobody else enqueues on the rank's stream; it waits for nothing but MakeStep.
  // Errors: kUnavailable (WORKER_LOST) if the rank makes no steps any more; those of `work`.
  virtual absl::Status Use(absl::FunctionRef<absl::Status(RankTurn&)> work) = 0;
  // Makes no further step. Those that have begun go on; a launch that has not ended is given up.
  virtual void Retire() = 0;
  // Makes launches only: steps of others are made without tokens, and waited for no longer.
  virtual void KeepLaunches() {}

  // Its device; tensors of steps are memory that it reaches.
  [[nodiscard]] virtual DeviceBackend& device() const = 0;
  [[nodiscard]] virtual Exchange& exchange() = 0;
  // The group's number in the log.
  [[nodiscard]] virtual std::uint32_t group() const = 0;
  // That it has made, those without tokens included.
  [[nodiscard]] virtual std::uint64_t steps() const = 0;
};

// A worker of this process as the sources of the process see it.
class RankHost {
 public:
  virtual ~RankHost() = default;

  [[nodiscard]] virtual const std::string& worker_id() const = 0;
  // The worker's rank in a group that it has formed on `epoch`, for a source that shares it. `wake`
  // is called from any thread when steps have ended. The rank may outlive the worker, and is of no
  // use then. Errors: kUnavailable (WORKER_LOST) if there is no such group here, which is so, too,
  // when the worker of that id runs in another process.
  virtual absl::StatusOr<std::shared_ptr<SourceRank>> RankOf(const GroupId& id, Epoch epoch,
                                                             std::function<void()> wake) = 0;
};

}  // namespace switchyard
