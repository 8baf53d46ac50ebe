// A gateway under a test's control: it opens sessions on one layer, number 3, all of whose experts
// are on the first worker.
// Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/format/bf16.h"
#include "worker/source/step_channel.h"

namespace switchyard::testing {

// A gateway that keeps what it was sent and answers when the test says so.
class ScriptedGateway final : public StepChannel {
 public:
  static constexpr std::int32_t kHidden = 32;

  struct Taken {
    StepSink* sink = nullptr;  // of its stream
    StepId step;
    LayerId layer;
    std::vector<std::byte> x;
    std::vector<std::int32_t> ids;
    Duration deadline{};
  };

  std::unique_ptr<StepStream> Open(const std::string& gateway, const OpenSessionRequest& request,
                                   StepSink* sink) override {
    sink_ = sink;
    ++opens;
    asked.push_back(gateway);
    requests.push_back(request);
    GatewayGrant grant;
    grant.grant.request = request;
    grant.grant.request.mode = request.mode.value_or(planned);
    grant.grant.request.step_deadline = std::chrono::seconds(5);
    Plan& plan = grant.grant.plan;
    plan.shape = {.hidden = kHidden, .intermediate = 8, .experts = 4, .top_k = 2};
    for (const std::string& id : workers) {
      plan.workers.push_back({id, {1, 1}, "host-" + id, DeviceKind::kCpu, "x"});
    }
    LayerPlacement layer{LayerId{3}, {}};
    for (std::int32_t e = 0; e < 4; ++e) {
      layer.experts.push_back({ExpertId{e}, WorkerOrdinal{0}, SlotId{e}});
    }
    plan.layers = {layer};
    DispatchConfig config;
    config.layer = LayerId{3};
    config.phase = request.phase;
    plan.configs = {config};
    grant.credits = 2;
    grant.worker_id = worker_id;
    plan.manifest = manifest;
    plan.epoch = epoch;
    if (silent) return std::make_unique<Stream>(this);
    if (opens > refusals && refuse.ok()) {
      sink->OnOpened(grant);
    } else {
      sink->OnEnded(refuse.ok() ? not_ready : refuse);
    }
    return std::make_unique<Stream>(this);
  }

  // y = factor * x, as F32.
  void Answer(const Taken& sent, float factor) {
    const auto* x = reinterpret_cast<const Bf16*>(sent.x.data());
    std::vector<float> y(sent.x.size() / sizeof(Bf16));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = factor * Bf16ToFloat(x[i]);
    sent.sink->OnStep(sent.step, absl::OkStatus(), std::as_bytes(std::span(y)));
  }
  StepSink* sink_ = nullptr;  // of the last stream
  int streams = 0;            // open ones
  absl::Status refuse;        // every Open
  int refusals = 0;           // so many Opens are refused as not ready
  absl::Status not_ready =
      MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "no committed epoch yet");
  bool silent = false;  // no Open is answered
  std::string worker_id = "w0";
  Epoch epoch{1};
  Sha256Digest manifest{};
  DispatchMode planned = DispatchMode::kNormal;  // of every phase
  int opens = 0;
  std::vector<std::string> workers = {"w0"};  // of the plan
  std::vector<std::string> asked;             // the gateway of every Open
  std::vector<OpenSessionRequest> requests;   // of every Open
  std::vector<Taken> taken;
  // Given at once to the steps that come, in turn; after them steps wait for Answer.
  std::deque<absl::Status> answers;

 private:
  class Stream final : public StepStream {
   public:
    explicit Stream(ScriptedGateway* gateway) : gateway_(gateway), sink_(gateway->sink_) {
      ++gateway_->streams;
    }
    ~Stream() override { --gateway_->streams; }
    absl::Status Submit(const GatewayStep& step) override {
      gateway_->taken.push_back({sink_,
                                 step.step,
                                 step.layer,
                                 {step.x.begin(), step.x.end()},
                                 {step.ids.begin(), step.ids.end()},
                                 step.deadline});
      if (gateway_->answers.empty()) return absl::OkStatus();
      const absl::Status answer = gateway_->answers.front();
      gateway_->answers.pop_front();
      if (answer.ok()) {
        gateway_->Answer(gateway_->taken.back(), 1);
      } else {
        sink_->OnStep(step.step, answer, {});
      }
      return absl::OkStatus();
    }

   private:
    ScriptedGateway* const gateway_;
    StepSink* const sink_;
  };
};

}  // namespace switchyard::testing
