#include "tests/worker/source/p2p/runner_fixture.h"

#include <cmath>
#include <limits>
#include <set>

#include "core/format/bf16.h"

namespace switchyard::testing {

Plan MakeTestPlan(std::uint64_t epoch, const std::vector<std::string>& ids, DispatchMode mode,
                  std::uint64_t life) {
  Plan plan;
  plan.deployment = "test";
  plan.model = "m";
  plan.epoch = Epoch{epoch};
  plan.shape = {.hidden = kHidden, .intermediate = 16, .experts = kExperts, .top_k = kTopK};
  std::uint64_t next = 1;
  for (const std::string& id : ids) {
    plan.workers.push_back({id, {life, next++}, "host-" + id, DeviceKind::kCpu, "fake"});
  }
  const auto workers = static_cast<std::int32_t>(ids.size());
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    LayerPlacement placement{LayerId{layer}, {}};
    for (std::int32_t w = 0; w < workers; ++w) {
      std::int32_t slot = 0;
      for (std::int32_t e = w; e < kExperts; e += workers) {
        placement.experts.push_back({ExpertId{e}, WorkerOrdinal{w}, SlotId{slot++}});
      }
    }
    plan.layers.push_back(placement);
    DispatchConfig config;
    config.layer = LayerId{layer};
    config.mode = mode;
    config.max_tokens_per_step = mode == DispatchMode::kLowLatency ? 64 : 0;
    plan.configs.push_back(config);
  }
  return plan;
}

TestBatch::TestBatch(std::int32_t token_count, std::uint64_t seed) : tokens(token_count) {
  SeededRng rng(seed);
  const auto count = static_cast<std::size_t>(tokens);
  for (std::size_t i = 0; i < count * kHidden; ++i) {
    x.push_back(FloatToBf16(static_cast<float>(rng.Uniform() * 4 - 2)));
  }
  for (std::size_t t = 0; t < count; ++t) {
    std::set<std::int32_t> used;
    for (std::int32_t k = 0; k < kTopK; ++k) {
      auto id = static_cast<std::int32_t>(rng.Below(kExperts + 1)) - 1;
      if (id >= 0 && !used.insert(id).second) id = -1;
      ids.push_back(id);
      weights.push_back(static_cast<float>(rng.Uniform()) + 0.1F);
    }
  }
  y.assign(count * kHidden, std::numeric_limits<float>::quiet_NaN());
}

StepRequest TestBatch::Request(LayerId layer) const {
  return RequestOf({.layer = layer,
                    .hidden = kHidden,
                    .top_k = kTopK,
                    .x = x,
                    .ids = ids,
                    .weights = weights,
                    .y = y.data()});
}

std::vector<float> TestBatch::ExpectedLowLatency() const {
  std::vector<float> out(y.size(), 0.0F);
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    for (std::size_t k = 0; k < kTopK; ++k) {
      const std::int32_t id = ids[t * kTopK + k];
      if (id < 0) continue;
      for (std::size_t i = 0; i < kHidden; ++i) {
        const float row =
            Bf16ToFloat(FloatToBf16(static_cast<float>(id + 1) * Bf16ToFloat(x[t * kHidden + i])));
        float& sum = out[t * kHidden + i];
        sum = std::fma(weights[t * kTopK + k], row, sum);
      }
    }
  }
  return out;
}

std::vector<float> TestBatch::ExpectedNormal(const Plan& plan) const {
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  std::vector<float> out(y.size(), 0.0F);
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    for (std::int32_t w = 0; w < workers; ++w) {
      for (std::size_t i = 0; i < kHidden; ++i) {
        float partial = 0;
        for (std::size_t k = 0; k < kTopK; ++k) {
          const std::int32_t id = ids[t * kTopK + k];
          if (id < 0 || id % workers != w) continue;
          partial +=
              weights[t * kTopK + k] * static_cast<float>(id + 1) * Bf16ToFloat(x[t * kHidden + i]);
        }
        out[t * kHidden + i] += Bf16ToFloat(FloatToBf16(partial));
      }
    }
  }
  return out;
}

void RunnerFixture::Start(const Plan& plan, const OpenSessionRequest& request) {
  SessionGrant grant;
  grant.session = {5, 6};
  grant.cookie = Cookie{77};
  grant.request = request;
  if (grant.request.step_deadline == Duration::zero()) {
    grant.request.step_deadline = std::chrono::seconds(1);
  }
  if (!grant.request.mode.has_value()) grant.request.mode = plan.configs.front().mode;
  grant.plan = plan;
  grant.hash = HashOf(plan);
  P2pRunnerOptions options;
  options.channel = &channel_;
  options.transport = &transport_;
  options.device = device_.get();
  auto stream =
      std::make_unique<HeldStream>(*device_->MakeStream({.work_class = WorkClass::kDecode}));
  HeldStream* const raw = stream.get();
  options.stream = std::move(stream);
  if (tensors_ != nullptr) {
    // Their arithmetic is the CPU's, in memory of the host: what runs where is what they show.
    auto encodes = std::make_unique<HeldStream>(*device_->MakeStream({}));
    auto sums = std::make_unique<HeldStream>(*device_->MakeStream({}));
    tensor_encodes_ = encodes.get();
    tensor_sums_ = sums.get();
    options.tensors = tensors_;
    options.tensor_encodes = std::move(encodes);
    options.tensor_sums = std::move(sums);
  }
  options.clock = &clock_;
  options.tracer = tracer_;
  options.rng = &rng_;
  options.wake = [this] { transport_.Wake(); };
  options.own_experts = own_experts_;
  options.own_worker_id = own_worker_id_;
  options.incarnation = incarnation_;
  options.grant = grant;
  options.credits = 2;
  options.chunk_rows_max = 5;
  if (piece_bytes_ > 0) options.piece_bytes = piece_bytes_;
  watch_.reset();
  runner_ = std::make_unique<P2pRunner>(std::move(options));
  stream_ = raw;
  watch_ = std::make_unique<PlanWatch>(&channel_, grant, [] {});
  SY_ASSERT_OK(runner_->Start(clock_.Now()));
}

void RunnerFixture::GrantAll(const Plan& plan) {
  std::uint32_t attachment = 900;
  for (const PlanWorker& worker : plan.workers) {
    const auto stream = channel_.Open(worker.endpoint);
    ASSERT_NE(stream, nullptr) << worker.id;
    stream->sink->OnAttached(GrantFor(stream->order, worker.incarnation, attachment++));
  }
  Pump();
}

void RunnerFixture::OpenReady(const Plan& plan, const OpenSessionRequest& request) {
  Start(plan, request);
  GrantAll(plan);
  SY_ASSERT_OK(runner_->ready());
}

bool RunnerFixture::Pump() {
  class Sink final : public FrameSink {
   public:
    void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
                 std::span<const std::byte> payload) override {
      Attachment::Of(link).OnFrame(link, raw, header, payload);
    }
    void OnLinkDown(Link& link, const absl::Status& why) override {
      Attachment::Of(link).OnLinkDown(link, why);
    }
  };
  Sink sink;
  bool worked = transport_.Progress(sink);
  worked |= watch_->Poll(*runner_, clock_.Now());
  worked |= runner_->Poll(clock_.Now()).worked;
  return worked;
}

ScriptedLink* RunnerFixture::LinkOf(const Plan& plan, std::size_t ordinal) {
  for (ScriptedLink* link : transport_.links) {
    const Attachment& attachment = Attachment::Of(*link);
    if (attachment.worker.id == plan.workers[ordinal].id &&
        attachment.worker.incarnation == plan.workers[ordinal].incarnation) {
      return link;
    }
  }
  return nullptr;
}

void RunnerFixture::AnswerAll(const Plan& plan) {
  std::vector<std::size_t> order;
  for (std::size_t w = 0; w < plan.workers.size(); ++w) order.push_back(w);
  AnswerAll(plan, order);
}

void RunnerFixture::AnswerAll(const Plan& plan, const std::vector<std::size_t>& order) {
  bool answered = true;
  while (answered) {
    answered = false;
    for (const std::size_t w : order) {
      while (AnswerOne(plan, w)) {
        answered = true;
        Pump();
      }
    }
  }
}

bool RunnerFixture::AnswerOne(const Plan& plan, std::size_t worker) {
  // The last answer of an epoch that ends closes its links.
  ScriptedLink* link = LinkOf(plan, worker);
  if (link == nullptr || link->sent.empty()) return false;
  const ScriptedLink::Sent sent = link->sent.front();
  link->sent.pop_front();
  transport_.Deliver(
      link, AnswerFrame(sent.frame, plan, static_cast<std::int32_t>(worker), link->offer()));
  return true;
}

}  // namespace switchyard::testing
