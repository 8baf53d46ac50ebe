// The runner for an engine whose tensors lie on a device: it passes them through pinned memory of
// the host to and from the runner of any binding.
//
//   Submit: the device reads x, ids and weights, after what the engine's stream holds
//     -> the inner runner's step, on memory of the host
//       -> the device writes y -> done
//
// Large steps, of a runner that takes them (StepLimits::device_tokens_min), leave x and y where
// they are, and only ids and weights, from which the step is planned, come to the host:
//
//   Submit: the device reads ids and weights, after what the engine's stream holds
//     -> the inner runner's step, whose rows the device encodes and sums -> done
//
// Each arrow is an event of the device or of the inner runner, which Poll looks at; no call waits
// for the device, but Take of a step that is not done, and Close. Inputs are read in the order of
// Submit, so a step whose engine's stream is late holds up those behind it; answers are written on
// a stream of their own, which waits for no engine.
//
// A step's deadline counts from Submit. A step that is overdue before its inputs have arrived has
// failed, and is done when the device has let go of them. What only the inner runner finds out,
// such as a lost worker or NaN in a strict session, is the step's result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/device/device_backend.h"
#include "worker/source/step_runner.h"

namespace switchyard {

struct StagedRunnerOptions {
  std::unique_ptr<StepRunner> inner;  // takes memory of the host
  DeviceBackend* device = nullptr;    // of the tensors; outlives the runner
  std::string device_name;            // for error texts, such as "cuda:0"
  // Both are the device's and wake the source.
  std::unique_ptr<Stream> reads;
  std::unique_ptr<Stream> writes;
  std::uint32_t steps_max = 16;  // in flight or not taken yet
};

class StagedRunner final : public StepRunner {
 public:
  explicit StagedRunner(StagedRunnerOptions options);
  ~StagedRunner() override;

  absl::Status Start(TimePoint now) override { return inner_->Start(now); }
  void OnPlan(const PlanUpdate& update, TimePoint now) override { inner_->OnPlan(update, now); }
  RunnerProgress Poll(TimePoint now) override;
  // Allocates pinned memory for the largest step so far. Errors: those of LimitsOf and
  // ValidateStep; kInvalidArgument (BAD_REQUEST) for memory that the device does not reach; those
  // of DeviceBackend::Allocate and of the calls of a Stream; kResourceExhausted (NO_CREDITS) when
  // too many steps are not taken yet.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now) override;
  // They are the inner runner's, for memory of the device.
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(LayerId layer) const override;
  // Also while the inner runner has the step: the device has to write y next.
  [[nodiscard]] bool awaits_device() const override { return !in_flight_.empty(); }
  [[nodiscard]] bool put_off() const override { return inner_->put_off(); }
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const override;
  absl::Status Take(const StepTicket& ticket, TimePoint now) override;
  void Close(TimePoint now) override;
  [[nodiscard]] Epoch epoch() const override { return inner_->epoch(); }
  [[nodiscard]] RunnerStatus Status() const override;

 private:
  // kFree and kDone: the device has nothing of the step, and neither has the inner runner.
  enum class Stage : std::uint8_t { kFree, kReading, kRunning, kWriting, kDone };

  // A step from Submit to Take. Its memory and events serve the next step in the same place.
  struct Slot {
    Stage stage = Stage::kFree;
    std::uint32_t generation = 0;
    StepRequest request;   // the caller's
    StepRequest staged;    // what the inner runner gets: in `memory`, but for x and y on_device
    StepTicket inner;      // kRunning
    absl::Status status;   // the result, once it is decided
    TimePoint deadline{};  // of all stages together
    std::unique_ptr<Buffer> memory;
    std::array<CopyPiece, 3> inputs{};  // x last; the device looks at these until the event is done
    CopyPiece output{};
    std::unique_ptr<DeviceEvent> read;
    std::unique_ptr<DeviceEvent> written;
  };

  // Errors: kInvalidArgument (BAD_REQUEST), naming the tensor.
  [[nodiscard]] absl::Status CheckMemory(const StepRequest& request) const;
  // The index of a slot that no ticket names.
  absl::StatusOr<std::uint32_t> FreeSlot();
  // Lets the device read the inputs of the slot's request; x stays where it is if `on_device`.
  absl::Status BeginReading(const StepLimits& limits, bool on_device, Slot& slot);
  // Places the step in the slot's memory and describes its copies.
  absl::Status Place(const StepLimits& limits, bool on_device, Slot& slot);
  // Takes the step as far as it goes. True if it has moved.
  bool Advance(Slot& slot, TimePoint now);
  bool AfterReading(Slot& slot, TimePoint now);
  // Gives the step to the inner runner, or has its x read as well where that does not take x and y
  // on the device any more.
  absl::Status BeginRunning(Slot& slot, TimePoint now);
  bool AfterRunning(Slot& slot, TimePoint now);
  void BeginWriting(Slot& slot);
  // Waits until neither device nor inner runner has anything of the step, which ends with `why`
  // unless it has ended before.
  void GiveUp(Slot& slot, const absl::Status& why, TimePoint now);

  const StagedRunnerOptions options_;
  StepRunner* const inner_;
  // By pointer: the device holds addresses in a slot.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint32_t> in_flight_;  // in the order of Submit, until they are done
  bool closed_ = false;
};

}  // namespace switchyard
