// A P2pRunner over a scripted transport and channel, with workers for which the test answers. A
// PlanWatch passes plans to it, as in a Source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "tests/testing/held_stream.h"
#include "tests/testing/late_device.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/source/p2p/p2p_runner.h"
#include "worker/source/plan_watch.h"

namespace switchyard::testing {

inline constexpr std::int32_t kHidden = 32;
inline constexpr std::int32_t kExperts = 7;
inline constexpr std::int32_t kTopK = 3;

// Experts dealt in turn to `ids`; worker i lives at "host-<id>" under incarnation {life, i + 1}.
Plan MakeTestPlan(std::uint64_t epoch, const std::vector<std::string>& ids, DispatchMode mode,
                  std::uint64_t life = 1);

// A batch with its memory. x is random BF16, weights positive, some ids -1; y is poisoned.
struct TestBatch {
  TestBatch(std::int32_t tokens, std::uint64_t seed);
  // Steps write `y`; the batch is otherwise not touched.
  [[nodiscard]] StepRequest Request(LayerId layer = LayerId{0}) const;
  // What scripted workers make of it: sum over k of w * bf16((id + 1) * x), in k order, FP32.
  [[nodiscard]] std::vector<float> ExpectedLowLatency() const;
  // Partial sums per worker of `plan`, rounded to BF16, added in ordinal order.
  [[nodiscard]] std::vector<float> ExpectedNormal(const Plan& plan) const;

  std::int32_t tokens;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  mutable std::vector<float> y;
};

class RunnerFixture : public ::testing::Test {
 protected:
  // Opens a session on `plan` whose workers have all granted.
  void OpenReady(const Plan& plan, const OpenSessionRequest& request = {});
  void Start(const Plan& plan, const OpenSessionRequest& request = {});
  void GrantAll(const Plan& plan);
  bool Poll() { return Pump(); }
  bool Pump();
  // The open link toward a worker of `plan`.
  ScriptedLink* LinkOf(const Plan& plan, std::size_t ordinal);
  // Answers every frame that waits, worker by worker in the given order of ordinals.
  void AnswerAll(const Plan& plan, const std::vector<std::size_t>& order);
  void AnswerAll(const Plan& plan);
  // Delivers the answer to the oldest frame to that worker; false when there is none.
  bool AnswerOne(const Plan& plan, std::size_t worker);
  bool IsDone(const StepTicket& ticket) { return *runner_->IsDone(ticket); }
  absl::Status Take(const StepTicket& ticket) { return runner_->Take(ticket, clock_.Now()); }
  absl::StatusOr<StepTicket> Submit(const StepRequest& request) {
    // As Source::Submit: a refusal of the coordinator is final.
    auto ticket = runner_->Submit(request, clock_.Now());
    if (absl::IsUnavailable(ticket.status()) && !watch_->refused().ok()) return watch_->refused();
    return ticket;
  }
  static absl::Status DoneStatus(const absl::StatusOr<bool>& done) {
    if (!done.ok()) return done.status();
    return *done ? absl::OkStatus() : absl::UnavailableError("not done");
  }

  ManualClock clock_;
  std::shared_ptr<StepTracer> tracer_ = std::make_shared<StepTracer>();  // of the runners to come
  SeededRng rng_{42};
  ScriptedTransport transport_;
  ScriptedChannel channel_;
  std::size_t piece_bytes_ = 0;        // of the runners to come; 0: as by default
  OwnExperts* own_experts_ = nullptr;  // of worker own_worker_id_, of the runners to come
  std::string own_worker_id_;
  std::unique_ptr<DeviceBackend> device_ = *CpuBackend::Create({.kernel_family = "portable_fp32"});
  HeldStream* stream_ = nullptr;  // of runner_; works in the call until it is held
  // The device of the tensors of the runners to come; null: memory of the host. Then its streams.
  std::shared_ptr<LateDevice> tensors_;
  HeldStream* tensor_encodes_ = nullptr;
  HeldStream* tensor_sums_ = nullptr;
  std::unique_ptr<P2pRunner> runner_;
  std::unique_ptr<PlanWatch> watch_;
  Incarnation incarnation_{11, 22};
};

}  // namespace switchyard::testing
