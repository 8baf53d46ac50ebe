// R73: the row sizes of Qwen3.5-397B (hidden 4096, top-10) through the whole system, an NVFP4 base
// layer and a BF16 draft, against the double reference.
//
// The layer of the model itself, 512 experts of intermediate 1024, is 13 GB of BF16 values once a
// CPU worker has loaded it: too much for a test. So the two sizes that make it so large are served
// apart: experts of the real size but 32 of them, and 512 experts of a smaller one. All layers in
// their real sizes are planned in tests/coordinator/plan_builder_test.cc.
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/activation_format.h"
#include "harness/in_process_deployment.h"
#include "tests/e2e/large_checkpoint.h"
#include "tests/e2e/random_step.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/scheme_reference.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::LargeCheckpoint;
using testing::RandomStep;
using testing::RunStep;
using testing::SchemeExpert;

constexpr LayerId kBaseLayer{0};
constexpr LayerId kDraftLayer{1};
constexpr std::int32_t kTokens = 8;
constexpr double kKernelMax = 1e-4;

struct LargeCase {
  const char* name;
  MoeShape shape;
  std::int32_t workers;
  bool packed_draft;  // as transformers 5 writes it
};
void PrintTo(const LargeCase& large, std::ostream* out) { *out << large.name; }

// y of one step in both modes: rows of low_latency travel as `wire`, those of normal as BF16.
// Experts are made one after the other: together they would take gigabytes of doubles.
struct Wanted {
  std::vector<double> low_latency;
  std::vector<double> normal;
  std::vector<double> unrounded;
};
template <typename MakeExpert>
Wanted ReferenceOf(const RandomStep& step, const ActivationSpec& wire, MakeExpert make) {
  const auto hidden = static_cast<std::size_t>(step.hidden);
  const auto top_k = static_cast<std::size_t>(step.top_k);
  Wanted wanted;
  for (auto* y : {&wanted.low_latency, &wanted.normal, &wanted.unrounded}) {
    y->assign(step.x.size(), 0.0);
  }
  const std::set<std::int32_t> used(step.ids.begin(), step.ids.end());
  for (const std::int32_t id : used) {
    const SchemeExpert expert = make(id);
    for (std::size_t pair = 0; pair < step.ids.size(); ++pair) {
      if (step.ids[pair] != id) continue;
      const std::size_t row = pair / top_k * hidden;
      std::vector<double> x;
      for (std::size_t i = 0; i < hidden; ++i) {
        x.push_back(static_cast<double>(Bf16ToFloat(step.x[row + i])));
      }
      std::vector<double> sent = x;
      testing::ReferenceRound(wire, sent);
      const bool quantized = wire.format != ActivationFormat::kBf16;
      const auto weight = static_cast<double>(step.weights[pair]);
      const auto add = [&](std::vector<double>& y, const std::vector<double>& out) {
        for (std::size_t i = 0; i < hidden; ++i) y[row + i] += weight * out[i];
      };
      const std::vector<double> unrounded = SchemeExpertRow(expert, x, false, false);
      add(wanted.unrounded, unrounded);
      if (!quantized && expert.middle.format == ActivationFormat::kBf16) {
        add(wanted.low_latency, unrounded);  // nothing rounds
        add(wanted.normal, unrounded);
        continue;
      }
      add(wanted.low_latency, SchemeExpertRow(expert, sent, true, quantized));
      add(wanted.normal, SchemeExpertRow(expert, x, true, false));
    }
  }
  return wanted;
}

class LargeModelTest : public ::testing::TestWithParam<LargeCase> {
 protected:
  void SetUp() override {
    InProcessOptions options;
    options.checkpoint = model_.path();
    options.workers = GetParam().workers;
    options.max_tokens_per_step = kTokens;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  void Open(Phase phase, std::unique_ptr<MoeSession>* session) {
    OpenSessionRequest order;
    order.phase = phase;
    SY_ASSERT_OK_AND_ASSIGN(*session, client_->OpenWhenReady(order, std::chrono::seconds(60)));
  }
  static const DispatchConfig& ConfigOf(const Plan& plan, LayerId layer, Phase phase) {
    for (const DispatchConfig& config : plan.configs) {
      if (config.layer == layer && config.phase == phase) return config;
    }
    ADD_FAILURE() << "no config of layer " << layer.value;
    return plan.configs.front();
  }

  LargeCheckpoint model_{GetParam().shape, GetParam().packed_draft};
  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;  // goes before the deployment
};

TEST_P(LargeModelTest, ServesAnNvfp4BaseLayerAndABf16Draft) {
  std::unique_ptr<MoeSession> decode;
  std::unique_ptr<MoeSession> prefill;
  ASSERT_NO_FATAL_FAILURE(Open(Phase::kDecode, &decode));
  ASSERT_NO_FATAL_FAILURE(Open(Phase::kPrefill, &prefill));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, decode->Grant());
  EXPECT_EQ(grant.plan.shape, GetParam().shape);
  const DispatchConfig& base = ConfigOf(grant.plan, kBaseLayer, Phase::kDecode);
  const DispatchConfig& draft = ConfigOf(grant.plan, kDraftLayer, Phase::kDecode);
  EXPECT_EQ(base.scheme, QuantScheme::kNvfp4);
  EXPECT_EQ(base.mode, DispatchMode::kLowLatency);
  EXPECT_EQ(base.format(), kNvfp4Format);
  EXPECT_EQ(base.global_scale, 1.0F / LargeCheckpoint::InputScale(0));
  EXPECT_EQ(draft.scheme, QuantScheme::kNone);
  EXPECT_EQ(draft.mode, DispatchMode::kLowLatency);
  EXPECT_EQ(draft.format(), kBf16Format);
  EXPECT_EQ(ConfigOf(grant.plan, kBaseLayer, Phase::kPrefill).format(), kBf16Format);

  for (const LayerId layer : {kBaseLayer, kDraftLayer}) {
    SCOPED_TRACE(absl::StrCat("layer ", layer.value));
    const bool is_base = layer == kBaseLayer;
    RandomStep step(GetParam().shape, kTokens, 7 + static_cast<std::uint64_t>(layer.value));
    const DispatchConfig& config = is_base ? base : draft;
    const Wanted wanted = ReferenceOf(
        step, testing::WireRounding(config.format(), config.global_scale), [&](std::int32_t e) {
          return is_base ? model_.BaseReference(e) : model_.DraftReference(e);
        });
    const double bound = LayerErrorBound(CoarsestActivationQuant(config.scheme, config.wire_dtype));

    SY_ASSERT_OK(RunStep(*decode, step, layer));
    const double low_latency = CalcDiff(step.y, wanted.low_latency);
    const double quantized = CalcDiff(step.y, wanted.unrounded);
    SY_ASSERT_OK(RunStep(*prefill, step, layer));
    const double normal = CalcDiff(step.y, wanted.normal);

    EXPECT_LE(low_latency, kKernelMax);
    EXPECT_LE(normal, kKernelMax);
    EXPECT_LE(quantized, bound);
    std::printf("%s layer %d: low_latency %.2e, normal %.2e of %.0e; quantization %.2e of %.2e\n",
                GetParam().name, layer.value, low_latency, normal, kKernelMax, quantized, bound);
  }
}

constexpr LargeCase kCases[] = {
    {"RealExperts", {.hidden = 4096, .intermediate = 1024, .experts = 32, .top_k = 10}, 2, false},
    {"AllExperts", {.hidden = 4096, .intermediate = 32, .experts = 512, .top_k = 10}, 4, true},
};
INSTANTIATE_TEST_SUITE_P(Qwen35, LargeModelTest, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace switchyard
