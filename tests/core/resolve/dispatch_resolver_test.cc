#include "core/resolve/dispatch_resolver.h"

#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/once_set.h"
#include "core/rng.h"
#include "tests/core/resolve/resolve_testing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::Case;
using testing::DtypeOf;
using testing::Everything;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::WarningsOf;

constexpr auto kBf16 = DispatchDtype::kBf16;
constexpr auto kFp8 = DispatchDtype::kFp8;
constexpr auto kInt8 = DispatchDtype::kInt8;
constexpr auto kNvfp4 = DispatchDtype::kNvfp4;
const auto kMismatch = FailsWith(StatusCode::kFailedPrecondition, Reason::kBadConfig);
const auto kUnsupported = FailsWith(StatusCode::kUnimplemented, Reason::kUnsupported);
const auto kBadConfig = FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig);

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// The default dtype of each scheme in decode (normal mode of nvfp4 below):
// R12, R13 and the dtypes of R74 - R85, R92.
TEST(DispatchResolverTest, AutoIsWhatTheSchemeTravelsAs) {
  struct Row {
    QuantScheme scheme;
    const char* cpu;
    const char* sm90;
    const char* sm100;
    const char* a2;
    const char* a5;
  };
  const std::vector<Row> rows{
      {QuantScheme::kNone, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kFp8Block, "fp8", "fp8", "fp8", "bf16", "bf16"},
      {QuantScheme::kFp8TensorStatic, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kFp8TensorDynamic, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kFp8Channel, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kNvfp4, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kW4Afp8, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kW8A8Int8, "int8", "bf16", "bf16", "int8", "int8"},
      {QuantScheme::kW4A8Int8, "int8", "FAILED_PRECONDITION", "FAILED_PRECONDITION", "int8",
       "int8"},
      {QuantScheme::kW4A4Int4, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kW4A16Int4, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kAwqInt4, "bf16", "bf16", "bf16", "bf16", "bf16"},
      {QuantScheme::kMxfp8, "bf16", "bf16", "bf16", "bf16", "bf16"},
  };
  for (const Row& row : rows) {
    const auto dtype = [&row](const char* profile) {
      return DtypeOf(Case(profile).Scheme(row.scheme));
    };
    const char* const name = QuantSchemeInfoOf(row.scheme).name;
    EXPECT_EQ(dtype("cpu"), row.cpu) << name;
    EXPECT_EQ(dtype("cuda_sm90"), row.sm90) << name;
    EXPECT_EQ(dtype("cuda_sm100"), row.sm100) << name;
    EXPECT_EQ(dtype("ascend_a2"), row.a2) << name;
    EXPECT_EQ(dtype("ascend_a3"), row.a2) << name;
    EXPECT_EQ(dtype("ascend_a5"), row.a5) << name;
  }
  EXPECT_EQ(rows.size(), AllQuantSchemes().size());
}

// R77, R78, R55: NVFP4 with a global scale travels so in low_latency; normal mode sends BF16.
TEST(DispatchResolverTest, Nvfp4NeedsAScaleAndLowLatency) {
  for (const char* profile : {"cpu", "cuda_sm100"}) {
    EXPECT_EQ(DtypeOf(Case(profile).Scheme(QuantScheme::kNvfp4).Scale()), "nvfp4");

    DecisionTrace normal =
        Case(profile).Scheme(QuantScheme::kNvfp4).Scale().In(Phase::kPrefill).Trace();
    ASSERT_TRUE(normal.outcome);
    EXPECT_EQ(normal.outcome->dtype(), kBf16);
    ASSERT_EQ(normal.adjustments.size(), 1U);
    EXPECT_EQ(normal.adjustments[0].id, AdjustmentId::kNvfp4Normal);
    EXPECT_EQ(WarningsOf(normal), "") << "nobody asked for nvfp4";

    normal =
        Case(profile).Scheme(QuantScheme::kNvfp4).Scale().In(Phase::kPrefill).Ask(kNvfp4).Trace();
    EXPECT_EQ(WarningsOf(normal), "nvfp4_normal_sends_bf16");
  }
}

// Experts that take nvfp4 rows in no mode refuse them in normal mode too.
TEST(DispatchResolverTest, Nvfp4ToOtherSchemesIsRefusedInBothModes) {
  for (const QuantSchemeInfo& info : AllQuantSchemes()) {
    if (info.scheme == QuantScheme::kNone || info.scheme == QuantScheme::kNvfp4) continue;
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      EXPECT_THAT(Case("cpu").Scheme(info.scheme).In(phase).Ask(kNvfp4).Resolve(), kMismatch)
          << info.name << " " << PhaseName(phase);
    }
  }
}

TEST(DispatchResolverTest, Nvfp4WithoutAScaleIsRefusedByThatName) {
  for (const auto scheme : {std::optional<QuantScheme>(), std::optional(QuantScheme::kNvfp4)}) {
    const absl::Status refused = Case("cuda_sm100").Scheme(scheme).Ask(kNvfp4).Resolve().status();
    EXPECT_THAT(refused, kMismatch);
    EXPECT_THAT(Text(refused), HasSubstr("nvfp4 rows need the layer's input_global_scale"));
  }
}

// R14: FP8 to Ascend A2 and A3 becomes INT8, with one warning and one FP32 scale for each row.
TEST(DispatchResolverTest, Fp8OnAscendBecomesInt8) {
  for (const char* profile : {"ascend_a2", "ascend_a3"}) {
    const DecisionTrace trace = Case(profile).Scheme(QuantScheme::kW8A8Int8).Ask(kFp8).Trace();

    ASSERT_TRUE(trace.outcome) << trace.refusal;
    EXPECT_EQ(trace.outcome->dtype(), kInt8);
    EXPECT_EQ(trace.outcome->format, kInt8Format);
    EXPECT_EQ(trace.outcome->wire.scales, 4);
    EXPECT_EQ(WarningsOf(trace), "fp8_to_int8");
    EXPECT_THAT(trace.warnings[0].text, HasSubstr("does not support fp8 rows; switching to int8"));
  }
  EXPECT_EQ(DtypeOf(Case("ascend_a3").Ask(kFp8)), "int8") << "scheme unknown";
  EXPECT_EQ(DtypeOf(Case("ascend_a5").Ask(kFp8)), "fp8") << "A5 has FP8";
}

// R15: NVFP4 on Ascend ends at configuration time, however it came about.
TEST(DispatchResolverTest, Nvfp4OnAscendIsRefused) {
  for (const char* profile : {"ascend_a2", "ascend_a3", "ascend_a5"}) {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      EXPECT_THAT(Case(profile).Scheme(QuantScheme::kNvfp4).Scale().In(phase).Resolve(),
                  kUnsupported);
      EXPECT_THAT(Case(profile).Scale().Ask(kNvfp4).In(phase).Resolve(), kUnsupported);
    }
  }
  const absl::Status refused = Case("ascend_a2").Scale().Resolve().status();
  EXPECT_THAT(Text(refused), HasSubstr("Ascend A2 NPU does not support nvfp4 rows"));
}

// R16: INT8 to a GPU becomes FP8, with one warning.
TEST(DispatchResolverTest, Int8OnGpusBecomesFp8) {
  for (const char* profile : {"deepep_v1", "cuda_sm90", "cuda_sm100"}) {
    const DecisionTrace trace = Case(profile).Scheme(QuantScheme::kFp8Block).Ask(kInt8).Trace();

    ASSERT_TRUE(trace.outcome) << trace.refusal;
    EXPECT_EQ(trace.outcome->dtype(), kFp8);
    EXPECT_EQ(WarningsOf(trace), "int8_to_fp8");
    EXPECT_THAT(trace.warnings[0].text, HasSubstr("does not support int8 rows; switching to fp8"));
  }
}

// CPU workers take what they proved; nothing goes in another's place.
TEST(DispatchResolverTest, CpusTakeEveryDtypeAsItIs) {
  EXPECT_EQ(DtypeOf(Case("cpu").Ask(kFp8)), "fp8");
  EXPECT_EQ(DtypeOf(Case("cpu").Ask(kInt8)), "int8");
  EXPECT_EQ(DtypeOf(Case("cpu").Scale().Ask(kNvfp4)), "nvfp4");
  EXPECT_EQ(DtypeOf(Case("cpu")), "bf16") << "auto, scheme unknown";
}

// R13: FP8 to W8A8 experts on a GPU only when it is requested.
TEST(DispatchResolverTest, W8A8OnGpusTakesFp8OnlyOnRequest) {
  EXPECT_EQ(DtypeOf(Case("cuda_sm90").Scheme(QuantScheme::kW8A8Int8)), "bf16");
  EXPECT_EQ(DtypeOf(Case("cuda_sm90").Scheme(QuantScheme::kW8A8Int8).Ask(kFp8)), "fp8");
}

// R90: W4AFP8 takes FP8 rows in low_latency; normal mode would drop their scales.
TEST(DispatchResolverTest, W4Afp8TakesFp8OnlyInLowLatency) {
  EXPECT_EQ(DtypeOf(Case("cuda_sm90").Scheme(QuantScheme::kW4Afp8).Ask(kFp8)), "fp8");
  EXPECT_EQ(DtypeOf(Case("cuda_sm90").Scheme(QuantScheme::kW4Afp8).Ask(kBf16)), "bf16");

  Case normal("cuda_sm90");
  const absl::Status refused =
      normal.Scheme(QuantScheme::kW4Afp8).Ask(kFp8).In(Phase::kPrefill).Resolve().status();
  EXPECT_THAT(refused, kMismatch);
  EXPECT_THAT(Text(refused), HasSubstr("scheme w4afp8 do not take fp8 rows in mode normal on cuda; "
                                       "ask for bf16 for this layer"));
}

// R96: FP8 in groups of 128 to experts with other groups.
TEST(DispatchResolverTest, Fp8RowsAreRefusedForOtherFp8Schemes) {
  for (const QuantScheme scheme : {QuantScheme::kMxfp8, QuantScheme::kFp8TensorStatic,
                                   QuantScheme::kFp8TensorDynamic, QuantScheme::kFp8Channel}) {
    for (const char* profile : {"cpu", "cuda_sm90", "ascend_a5"}) {
      for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
        EXPECT_THAT(Case(profile).Scheme(scheme).Ask(kFp8).In(phase).Resolve(), kMismatch);
      }
    }
  }
}

// R91: a scale in the config of weights that take unquantized activations.
TEST(DispatchResolverTest, Int4WeightsTakeUnquantizedActivations) {
  for (const QuantScheme scheme : {QuantScheme::kW4A16Int4, QuantScheme::kAwqInt4}) {
    const absl::Status refused = Case("cuda_sm100").Scheme(scheme).Scale().Resolve().status();
    EXPECT_THAT(refused, kMismatch);
    EXPECT_THAT(Text(refused), HasSubstr("int4 weights take unquantized activations"));
  }
}

// R92: a word about speed, once a process.
TEST(DispatchResolverTest, W4A4IsSaidToBeSlow) {
  OnceSet once;
  int said = 0;
  for (std::int32_t layer = 0; layer < 60; ++layer) {
    Case a_case("ascend_a3");
    a_case.Scheme(QuantScheme::kW4A4Int4).request.layer.layer = LayerId{layer};
    const DecisionTrace trace = a_case.Trace();
    ASSERT_EQ(WarningsOf(trace), "w4a4_is_slow");
    said += once.First(WarningName(trace.warnings[0].id)) ? 1 : 0;
  }
  EXPECT_EQ(said, 1);
}

// R29, R27: an explicit dtype leaves an unquantized draft at BF16, and the draft's BF16 leaves the
// base unchanged.
TEST(DispatchResolverTest, AnExplicitDtypeKeepsUnquantizedDraftsInBf16) {
  Case base("cuda_sm90");
  base.Scheme(QuantScheme::kFp8Block).Ask(kFp8);
  Case draft("cuda_sm90");
  draft.Ask(kFp8).Draft();
  Case excluded("cuda_sm90");
  excluded.Scheme(QuantScheme::kFp8Block).Ask(kFp8).request.layer.excluded = true;

  EXPECT_EQ(DtypeOf(base), "fp8");
  EXPECT_EQ(WarningsOf(base.Trace()), "");
  for (Case* kept : {&draft, &excluded}) {
    const DecisionTrace trace = kept->Trace();
    ASSERT_TRUE(trace.outcome) << trace.refusal;
    EXPECT_EQ(trace.outcome->dtype(), kBf16);
    EXPECT_EQ(WarningsOf(trace), "unquantized_keeps_bf16");
    EXPECT_EQ(trace.subject.scheme, QuantScheme::kNone);
  }
  draft.request.layer.quant_config.emplace().bf16_dispatch = true;
  EXPECT_EQ(DtypeOf(draft), "bf16");
  EXPECT_EQ(DtypeOf(base), "fp8");
}

// R30: a layer without any quant config.
TEST(DispatchResolverTest, ALayerWithoutQuantConfigIsResolved) {
  for (const char* profile : {"cpu", "cuda_sm90", "ascend_a2"}) {
    Case draft(profile);
    draft.request.layer.role = LayerRole::kDraft;
    EXPECT_EQ(DtypeOf(draft), "bf16");
  }
}

// A draft with a scheme of its own is not an unquantized one.
TEST(DispatchResolverTest, AQuantizedDraftTravelsAsItsScheme) {
  Case draft("ascend_a3");
  draft.Scheme(QuantScheme::kW8A8Int8).request.layer.role = LayerRole::kDraft;

  EXPECT_EQ(DtypeOf(draft), "int8");
}

// R2, R11, R28: deprecated ways in work, each with a warning that names the new one.
TEST(DispatchResolverTest, DeprecatedFlagsWorkAndSayWhatToWrite) {
  Case flag("cuda_sm90");
  flag.Scheme(QuantScheme::kFp8Block).request.flags.bf16_dispatch = "options.yaml";
  const DecisionTrace by_flag = flag.Trace();
  EXPECT_EQ(by_flag.outcome->dtype(), kBf16);
  EXPECT_EQ(WarningsOf(by_flag), "deprecated_bf16_flag");
  EXPECT_THAT(by_flag.warnings[0].text, HasSubstr("--dispatcher-output-dtype bf16"));
  EXPECT_THAT(by_flag.decision->rules[by_flag.decision->winner].why, HasSubstr("options.yaml"));

  Case key("cuda_sm90");
  key.Scheme(QuantScheme::kFp8Block).Config().bf16_dispatch = true;
  const DecisionTrace by_key = key.Trace();
  EXPECT_EQ(by_key.outcome->dtype(), kBf16);
  EXPECT_EQ(WarningsOf(by_key), "deprecated_bf16_key");
  EXPECT_THAT(by_key.warnings[0].text, HasSubstr("dispatcher_output_dtype bf16"));

  Case npu("ascend_a2");
  npu.In(Phase::kPrefill).request.flags.npu_normal_int8 = "options.yaml";
  EXPECT_EQ(npu.Trace().outcome->dtype(), kInt8);
  EXPECT_EQ(WarningsOf(npu.Trace()), "deprecated_npu_int8_flag");
}

// R17: once a process and reason, not once a layer.
TEST(DispatchResolverTest, WarningsOfManyLayersAreOneReasonEach) {
  OnceSet once;
  std::map<std::string, int> said;
  for (std::int32_t layer = 0; layer < 61; ++layer) {
    Case a_case("ascend_a2");
    a_case.Scheme(layer < 60 ? QuantScheme::kW8A8Int8 : QuantScheme::kNone).Ask(kFp8);
    a_case.request.layer.layer = LayerId{layer};
    a_case.request.flags.bf16_dispatch = "options.yaml";
    for (const Warning& warning : a_case.Trace().warnings) {
      const std::string id(WarningName(warning.id));
      if (once.First(id)) ++said[id];
    }
  }
  EXPECT_EQ(said,
            (std::map<std::string, int>{
                {"deprecated_bf16_flag", 1}, {"fp8_to_int8", 1}, {"unquantized_keeps_bf16", 1}}));
}

// R18, R19, R21: another config replaces the whole of the old one and counts at once, in both
// modes.
TEST(DispatchResolverTest, AnotherQuantConfigReplacesTheOldOneInBothModes) {
  Case layer("cuda_sm100");
  layer.Scheme(QuantScheme::kNvfp4).Scale();
  EXPECT_EQ(DtypeOf(layer.In(Phase::kDecode)), "nvfp4");

  const std::vector<ConfigEntry> next{{"dispatcher_output_dtype", "bf16"}};
  SY_ASSERT_OK_AND_ASSIGN(layer.request.layer.quant_config, ParseLayerQuantConfig(next));

  for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
    const DecisionTrace trace = layer.In(phase).Trace();
    EXPECT_EQ(trace.outcome->dtype(), kBf16);
    EXPECT_EQ(trace.decision->rule(), RuleId::kLayerDtype);
  }
}

// R20: what was decided stays as it was decided; a later config makes another decision.
TEST(DispatchResolverTest, ALaterConfigDoesNotTouchADecision) {
  Case layer("cpu");
  layer.Scheme(QuantScheme::kFp8Block);
  SY_ASSERT_OK_AND_ASSIGN(const DecisionTrace in_flight, layer.Resolve());
  const std::string before = ExplainText(in_flight);

  layer.Config().dispatcher_output_dtype = kBf16;
  SY_ASSERT_OK_AND_ASSIGN(const DecisionTrace later, layer.Resolve());

  EXPECT_EQ(later.outcome->dtype(), kBf16);
  EXPECT_EQ(in_flight.outcome->dtype(), kFp8);
  EXPECT_EQ(ExplainText(in_flight), before);
}

std::vector<std::string> Environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

// R23, R26: a base in INT8 and a draft in BF16, and another model with other runners, on two
// threads at once: each keeps its own, and the environment is as it was.
TEST(DispatchResolverTest, ModelsAndDraftsDoNotDisturbEachOther) {
  const std::vector<std::string> before = Environment();
  const auto alternate = [](const char* profile, QuantScheme scheme, RunnerBackend runner,
                            const std::string& base_dtype) {
    for (int round = 0; round < 100; ++round) {
      Case base(profile);
      base.Scheme(scheme).request.layer.runner = runner;
      Case draft(profile);
      draft.Draft();
      EXPECT_EQ(DtypeOf(base), base_dtype);
      EXPECT_EQ(DtypeOf(draft), "bf16");
    }
  };
  {
    const std::jthread npu(alternate, "ascend_a3", QuantScheme::kW8A8Int8, RunnerBackend::kAuto,
                           "int8");
    const std::jthread gpu(alternate, "cuda_sm90", QuantScheme::kFp8Block, RunnerBackend::kDeepGemm,
                           "fp8");
  }
  EXPECT_EQ(Environment(), before);
}

// R123: one layer, one step: FP8 to one kind of worker, INT8 to another.
TEST(DispatchResolverTest, EachEdgeHasItsOwnDtype) {
  EXPECT_EQ(DtypeOf(Case("cuda_sm90").Ask(kFp8)), "fp8");
  EXPECT_EQ(DtypeOf(Case("ascend_a2").Ask(kFp8)), "int8");
  EXPECT_EQ(DtypeOf(Case("cpu").Scheme(QuantScheme::kW8A8Int8)), "int8");
  EXPECT_EQ(DtypeOf(Case("cuda_sm90").Scheme(QuantScheme::kW8A8Int8)), "bf16");
}

// R123
TEST(DispatchResolverTest, ALockstepGroupIsOfOneKind) {
  const std::vector<CapabilitySet> same{Everything("cuda_sm90"), Everything("cuda_sm90")};
  const std::vector<CapabilitySet> mixed{Everything("cuda_sm90"), Everything("ascend_a2")};

  SY_EXPECT_OK(CheckLockstepGroup(same));
  const absl::Status refused = CheckLockstepGroup(mixed);
  EXPECT_THAT(refused, kMismatch);
  EXPECT_THAT(Text(refused), HasSubstr("this one has ascend, cuda; use p2p"));
  Case edge("cuda_sm90");
  edge.workers = mixed;
  EXPECT_THAT(edge.Resolve(), kBadConfig);
}

// R121, R126: what an end did not prove is not used: BF16 by default, refused when requested.
TEST(DispatchResolverTest, WhatAnEndDidNotProveIsNotUsed) {
  const auto without = [](CapabilitySet set, DispatchDtype dtype) {
    std::erase(set.wire_dtypes, dtype);
    return set;
  };
  Case worker("cuda_sm100");
  worker.Scheme(QuantScheme::kNvfp4).Scale().request.layer.runner =
      RunnerBackend::kFlashinferCutedsl;
  worker.workers[1] = without(worker.workers[1], kNvfp4);
  DecisionTrace trace = worker.Trace();
  ASSERT_TRUE(trace.outcome) << trace.refusal;
  EXPECT_EQ(trace.outcome->dtype(), kBf16);
  ASSERT_EQ(trace.adjustments.size(), 1U);
  EXPECT_EQ(trace.adjustments[0].why,
            "worker 1 of the edge (cuda_sm100) did not prove that it takes nvfp4 rows");
  EXPECT_THAT(worker.Ask(kNvfp4).Resolve(), kUnsupported);

  Case source("cuda_sm90");
  source.Scheme(QuantScheme::kFp8Block).request.source = without(Everything("cpu"), kFp8);
  EXPECT_EQ(DtypeOf(source), "bf16");
  EXPECT_THAT(source.Ask(kFp8).Resolve(), kUnsupported);

  for (const char* profile : {"deepep_v1", "cuda_sm90"}) {
    EXPECT_EQ(DtypeOf(Case(profile).Scheme(QuantScheme::kNvfp4).Scale()), "bf16") << profile;
    EXPECT_THAT(Case(profile).Scheme(QuantScheme::kNvfp4).Scale().Ask(kNvfp4).Resolve(),
                kUnsupported);
  }
}

// R121: no fall-back where the experts take nothing else, no BF16, no scheme.
TEST(DispatchResolverTest, RefusesWhatCannotBeServed) {
  Case int8_only("cpu");
  int8_only.Scheme(QuantScheme::kW4A8Int8);
  std::erase(int8_only.workers[0].wire_dtypes, kInt8);
  EXPECT_THAT(int8_only.Resolve(), kUnsupported);

  Case no_bf16("cpu");
  no_bf16.Scheme(QuantScheme::kNone);
  std::erase(no_bf16.workers[1].wire_dtypes, kBf16);
  EXPECT_THAT(no_bf16.Resolve(), kUnsupported);

  for (const QuantSchemeInfo& info : AllQuantSchemes()) {
    Case no_scheme("cpu");
    no_scheme.Scheme(info.scheme).Scale();
    no_scheme.Config() = {};
    std::erase(no_scheme.workers[1].schemes, info.scheme);
    const absl::Status refused = no_scheme.Resolve().status();
    EXPECT_THAT(refused, kUnsupported) << info.name;
    EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat("computes scheme ", info.name)));
  }
}

// A2 between nodes carries no quantized rows in normal mode.
TEST(DispatchResolverTest, A2BeyondEightRanksSendsBf16InNormalMode) {
  const auto dtype = [](const char* profile, std::size_t ranks, Phase phase) {
    return DtypeOf(Case(profile, ranks).Scheme(QuantScheme::kW8A8Int8).In(phase));
  };
  EXPECT_EQ(dtype("ascend_a2", 8, Phase::kPrefill), "int8");
  EXPECT_EQ(dtype("ascend_a2", 9, Phase::kPrefill), "bf16");
  EXPECT_EQ(dtype("ascend_a2", 9, Phase::kDecode), "int8");
  EXPECT_EQ(dtype("ascend_a3", 9, Phase::kPrefill), "int8");
  Case nine("ascend_a2", 9);
  EXPECT_EQ(WarningsOf(nine.Scheme(QuantScheme::kW8A8Int8).In(Phase::kPrefill).Trace()),
            "normal_ranks_send_bf16");

  const absl::Status refused = nine.Scheme(QuantScheme::kW4A8Int8).Resolve().status();
  EXPECT_THAT(refused, kMismatch);
  EXPECT_THAT(Text(refused), HasSubstr("use mode low_latency, or fewer workers"));
}

// One GPU of a group without NVFP4, or with other scales, decides for all of its edge.
TEST(DispatchResolverTest, AnEdgeTakesWhatAllOfItsWorkersTake) {
  Case packed("cuda_sm100");
  packed.Ask(kFp8);
  EXPECT_EQ(packed.Trace().outcome->format, kFp8Ue8m0Format);
  EXPECT_EQ(packed.Trace().outcome->wire.total(), 7168 + 56);
  packed.workers[1] = Everything("cuda_sm90");
  EXPECT_EQ(packed.Trace().outcome->format, kFp8Format);

  Case nvfp4("cuda_sm100");
  nvfp4.Scheme(QuantScheme::kNvfp4).Scale();
  nvfp4.workers[1] = Everything("cuda_sm90");
  EXPECT_EQ(DtypeOf(nvfp4), "bf16");
}

// R22, R33, R34: what is reported for a layer.
TEST(DispatchResolverTest, ReportsFlagsBytesAndBuffers) {
  struct Row {
    DispatchDtype dtype;
    bool use_fp8, use_nvfp4;
    std::int64_t wire;
  };
  for (const Row& row : std::vector<Row>{{kBf16, false, false, 14336},
                                         {kFp8, true, false, 7392},
                                         {kInt8, true, false, 7172},
                                         {kNvfp4, false, true, 4032}}) {
    const DecisionTrace trace = Case("cpu").Scale().Ask(row.dtype).Trace();

    ASSERT_TRUE(trace.outcome) << trace.refusal;
    const DispatchOutcome& outcome = *trace.outcome;
    EXPECT_EQ(outcome.dtype(), row.dtype);
    EXPECT_EQ(outcome.use_fp8, row.use_fp8);
    EXPECT_EQ(outcome.use_nvfp4, row.use_nvfp4);
    EXPECT_EQ(outcome.wire.total(), row.wire);
    EXPECT_EQ(outcome.combine_dtype, kBf16);
    EXPECT_EQ(outcome.combine_row_bytes, 14336);
    EXPECT_EQ(outcome.staging.dispatch, (row.wire + 16) * 128 * 8) << "low_latency: top-k rows";
    EXPECT_EQ(outcome.staging.combine, std::int64_t{14336} * 128 * 8);
    EXPECT_EQ(trace.decision->rule(), RuleId::kExplicit);
  }
  const DecisionTrace normal = Case("cpu", 4).In(Phase::kPrefill).Trace();
  EXPECT_EQ(normal.outcome->staging.dispatch, std::int64_t{14336} * 128 * 4) << "a row a worker";
}

// The most specific override wins; a layer's "auto" cancels the deployment's.
TEST(DispatchResolverTest, TheMostSpecificOverrideDecides) {
  Case a_case("cpu");
  a_case.Scheme(QuantScheme::kW8A8Int8).Ask(kBf16);
  EXPECT_EQ(DtypeOf(a_case), "bf16");
  a_case.request.overrides.push_back({"", {}, Phase::kDecode, kInt8, "phase decode"});
  EXPECT_EQ(DtypeOf(a_case), "int8");
  a_case.request.overrides.push_back({"", LayerId{3}, {}, kBf16, "layer 3"});
  EXPECT_EQ(DtypeOf(a_case), "bf16");
  a_case.request.overrides.push_back({"", LayerId{3}, Phase::kDecode, {}, "layer 3, decode"});
  EXPECT_EQ(DtypeOf(a_case), "int8") << "by its scheme";
  a_case.Ask(kFp8);
  EXPECT_EQ(DtypeOf(a_case), "int8") << "two wide wishes that differ do not matter to layer 3";
  a_case.request.layer.layer = LayerId{4};
  a_case.In(Phase::kPrefill);
  EXPECT_THAT(a_case.Resolve(), kBadConfig);
}

TEST(DispatchResolverTest, RefusesEdgesWithoutWorkersAndUnknownProfiles) {
  EXPECT_THAT(Case("cpu", 0).Resolve(), kBadConfig);
  Case unknown("cpu");
  unknown.workers[1].device_profile = "abacus";
  EXPECT_THAT(unknown.Resolve(), kBadConfig);
  unknown.workers[1].device_profile = "cuda_sm90";
  EXPECT_THAT(unknown.Resolve(), kBadConfig) << "a profile of another kind";
}

// Errors name layer, scheme and dtype, in words and as metadata.
TEST(DispatchResolverTest, RefusalsNameLayerSchemeAndDtype) {
  const absl::Status refused =
      Case("cuda_sm90").Scheme(QuantScheme::kAwqInt4).Ask(kFp8).Resolve().status();

  EXPECT_EQ(Text(refused),
            "layer 3 of model m (scheme awq_int4), phase decode, cpu -> cuda: experts of scheme "
            "awq_int4 do not take fp8 rows in mode low_latency on cuda: int4 weights take "
            "unquantized activations; ask for bf16 for this layer (dispatcher_output_dtype)");
  const auto metadata = MetadataOf(refused);
  EXPECT_EQ(metadata.at("layer"), "3");
  EXPECT_EQ(metadata.at("scheme"), "awq_int4");
  EXPECT_EQ(metadata.at("dtype"), "fp8");
  EXPECT_EQ(metadata.at("mode"), "low_latency");
}

// For any request, layer and workers: a consistent outcome, or a refusal
// with one of the documented reasons.
TEST(DispatchResolverTest, RandomRequestsEndInAnOutcomeThatHoldsTogetherOrARefusal) {
  const std::uint64_t seed = 2026;
  SeededRng rng(seed);
  int outcomes = 0;
  int refusals = 0;
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    Case a_case(DeviceProfiles()[rng.Below(DeviceProfiles().size())].name, 1 + rng.Below(12));
    DispatchRequest& request = a_case.request;
    if (rng.Below(4) != 0) a_case.Scheme(AllQuantSchemes()[rng.Below(13)].scheme);
    if (rng.Below(2) == 0) a_case.Ask(static_cast<DispatchDtype>(rng.Below(4)));
    if (rng.Below(3) == 0) a_case.Scale();
    if (rng.Below(3) == 0) a_case.Config().dispatcher_output_dtype = kInt8;
    request.phase = static_cast<Phase>(rng.Below(3));
    request.layer.runner = static_cast<RunnerBackend>(rng.Below(5));
    if (rng.Below(3) == 0) a_case.workers[0].wire_dtypes.resize(1);

    const DecisionTrace trace = a_case.Trace();

    EXPECT_NE(trace.outcome.has_value(), !trace.refusal.ok());
    EXPECT_NE(ExplainText(trace), "");
    if (!trace.outcome) {
      ++refusals;
      const Reason reason = ReasonOf(trace.refusal);
      EXPECT_TRUE(reason == Reason::kBadConfig || reason == Reason::kUnsupported);
      continue;
    }
    ++outcomes;
    const DispatchDtype dtype = trace.outcome->dtype();
    EXPECT_EQ(trace.adjustments.empty() ? trace.decision->dtype : trace.adjustments.back().to,
              dtype);
    EXPECT_TRUE(request.source.Takes(dtype));
    for (const CapabilitySet& worker : a_case.workers) {
      EXPECT_TRUE(worker.Takes(dtype));
      EXPECT_EQ(FindDeviceProfile(worker.device_profile)->Wire(dtype).support,
                WireSupport::kNative);
    }
    const bool scaled =
        request.layer.quant_config && request.layer.quant_config->input_global_scale;
    if (const auto scheme = EffectiveScheme(request.layer)) {
      EXPECT_TRUE(Accepts(*scheme, dtype, {a_case.workers[0].device, trace.mode, scaled},
                          DtypeOrigin::kExplicit));
    }
    EXPECT_FALSE(dtype == kNvfp4 && (trace.mode == DispatchMode::kNormal || !scaled));
  }
  EXPECT_GT(outcomes, 1000);
  EXPECT_GT(refusals, 500);
}

// The refused dtype is not the requested one: the text says how one became the other.
TEST(DispatchResolverTest, ARefusalNamesItsCauses) {
  Case a_case("ascend_a2");
  a_case.Scheme(QuantScheme::kAwqInt4).Ask(DispatchDtype::kFp8);

  const absl::Status refused = a_case.Trace().refusal;

  EXPECT_THAT(refused,
              testing::FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_NE(refused.message().find(
                "fp8 by rule 0 (explicit: deployment chat asks for it); Ascend A2 NPU does not "
                "support fp8 rows; switching to int8; experts of scheme awq_int4 do not take int8"),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(MetadataOf(refused).at("warnings"), "fp8_to_int8");
  EXPECT_EQ(MetadataOf(refused).at("dtype"), "int8");
}

}  // namespace
}  // namespace switchyard
