// Every kind of quantized checkpoint through the whole system: coordinator, workers and client in
// one process, planned by the checkpoint's own metadata, against the double reference of its
// numbers.
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "harness/in_process_deployment.h"
#include "model/checkpoint.h"
#include "tests/e2e/golden_step.h"
#include "tests/e2e/scheme_layer.h"
#include "tests/e2e/served_golden.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/scheme_reference.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::FailsWith;
using testing::GoldenStep;
using testing::RunGoldenStep;
using testing::SchemeLayerOf;
using testing::SchemeMoe;
using testing::ServedGolden;

constexpr std::int32_t kTokens = 48;
constexpr double kKernelMax = 1e-4;
// The bounds are those of rows of 2048 and more; these have 24 to 136 values.
constexpr double kShortRows = 1.2;

class SchemesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    InProcessOptions options;
    options.checkpoint = model_.path();
    options.workers = 1;
    options.logger = &logger_;
#ifdef SY_TEST_DEVICE  // a build of this test of its own
    options.device = SY_TEST_DEVICE;
    const absl::Status made = MakeDevice(options.device).status();
    if (absl::IsFailedPrecondition(made)) GTEST_SKIP() << made;
#endif
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  // One deployment for each wire dtype, beside each other on the same worker.
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(DtypeChoice dtype, DispatchMode mode) {
    DeploymentSpec spec;
    spec.name = absl::StrCat(DtypeChoiceName(dtype), "-", DispatchModeName(mode));
    spec.checkpoint = model_.path();
    spec.phases = {{Phase::kMixed, mode}};
    spec.dispatcher_output_dtype = dtype;
    const absl::Status applied = deployment_->Apply(spec);
    if (!applied.ok()) return applied;
    OpenSessionRequest order;
    order.deployment = spec.name;
    return client_->OpenWhenReady(order, std::chrono::seconds(5));
  }

  ServedGolden model_{GetParam()};
  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;
};

// Section 1.6 of the specification, by its own formulas.
std::uint64_t BytesOfRow(const WireFormat& format, std::int32_t hidden) {
  const auto h = static_cast<std::uint64_t>(hidden);
  const auto groups = [h](std::uint64_t of) { return (h + of - 1) / of; };
  if (format == kFp8Format) return h + 4 * groups(128);
  if (format == kFp8Ue8m0Format) return h + groups(128);
  if (format == kInt8Format) return h + 4;
  if (format == kNvfp4Format) return (h + 1) / 2 + groups(16);
  return 2 * h;
}

// R13, R74..R85, R127: rows travel as the scheme likes them best and as BF16, in both modes; what
// comes back is what the definition of its numbers gives, and near to what unquantized rows would
// give.
TEST_P(SchemesTest, AnswersAsTheDefinitionOfItsNumbersSays) {
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model_.path()));
  SchemeMoe moe = SchemeLayerOf(*checkpoint, LayerId{0});
  const MoeShape shape = ShapeOf(checkpoint->config());
  const QuantScheme scheme = checkpoint->FindExperts(LayerId{0})->quant().scheme;
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    for (const DtypeChoice dtype : {DtypeChoice::kAuto, DtypeChoice::kBf16}) {
      SCOPED_TRACE(absl::StrCat(DispatchModeName(mode), " ", DtypeChoiceName(dtype)));
      auto session = Open(dtype, mode);
#ifdef SY_TEST_DEVICE
      // Its rows are INT8, which GPUs do not send: a plan says so.
      if (scheme == QuantScheme::kW4A8Int8) {
        EXPECT_THAT(session, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
        continue;
      }
#endif
      if (scheme == QuantScheme::kW4A8Int8 && dtype == DtypeChoice::kBf16) {
        EXPECT_THAT(session, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
        EXPECT_NE(session.status().message().find("do not take bf16 rows"),
                  absl::string_view::npos);
        continue;
      }
      SY_ASSERT_OK(session.status());
      SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, (*session)->Grant());
      const DispatchConfig& config = grant.plan.configs.front();
      EXPECT_EQ(config.scheme, scheme);
      moe.wire = testing::WireRounding(config.format(), config.global_scale);
      GoldenStep step(model_, kTokens, 5);

      SY_ASSERT_OK(RunGoldenStep(**session, step, LayerId{0}));

      const AttachmentCounters counted = testing::CountersOf(**session);
      EXPECT_GT(counted.rows, 0U);
      EXPECT_EQ(counted.request_payload_bytes,
                counted.rows * BytesOfRow(config.format(), shape.hidden));
      const testing::ReferenceMoeInput input{step.x, step.ids, step.weights};
      EXPECT_LE(CalcDiff(step.y, SchemeMoeLayer(moe, shape, input, true)), kKernelMax);
      EXPECT_LE(CalcDiff(step.y, SchemeMoeLayer(moe, shape, input, false)),
                kShortRows * LayerErrorBound(CoarsestActivationQuant(scheme, config.wire_dtype)));
    }
  }
}

TEST(ServedGoldensTest, AreAllCheckpointsOfTheGoldens) {
  const std::set<std::string> served(std::begin(testing::kServedGoldens),
                                     std::end(testing::kServedGoldens));
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(SY_QUANT_GOLDENS)) {
    if (entry.is_directory()) folders.insert(entry.path().filename().string());
  }

  EXPECT_EQ(served, folders);
}

INSTANTIATE_TEST_SUITE_P(Goldens, SchemesTest, ::testing::ValuesIn(testing::kServedGoldens),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace switchyard
