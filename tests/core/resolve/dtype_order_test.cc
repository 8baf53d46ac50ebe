#include "core/resolve/dtype_order.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/reference/sglang_dtype_order.h"

namespace switchyard {
namespace {

using reference::SglangDraftOrder;
using reference::SglangMergedOrder;
using ::testing::HasSubstr;

using Row = std::vector<std::string>;

// A table that truth_tables.py wrote from the definition; the first row names the columns.
std::vector<Row> ReadTable(const std::string& name) {
  std::ifstream file(absl::StrCat(TESTDATA, "/", name));
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(absl::StrSplit(line, '\t'));
  return rows;
}

// One input of the truth table, by its words.
struct Input {
  std::string scheme, option, flag, config, runner, device;

  [[nodiscard]] OrderInputs Make() const {
    OrderInputs in;
    if (option != "auto") in.requested = RequestedDtype{*DispatchDtypeFromName(option), "the test"};
    if (flag == "1") in.flags.bf16_dispatch = "the test";
    if (config != "null") in.config.emplace();
    if (config == "scale" || config == "both") in.config->input_global_scale = 448.0F;
    if (config == "key" || config == "both") {
      in.config->dispatcher_output_dtype = DispatchDtype::kInt8;
    }
    in.runner = *RunnerBackendFromName(runner);
    in.worker = device == "ascend_a2" ? DeviceKind::kAscend : DeviceKind::kCpu;
    if (device == "cuda") in.worker = DeviceKind::kCuda;
    in.mode = DispatchMode::kLowLatency;
    if (scheme != "-") in.scheme = QuantSchemeFromName(scheme);
    return in;
  }
  [[nodiscard]] std::string Text() const {
    return absl::StrJoin({scheme, option, flag, config, runner, device}, "\t");
  }
};

constexpr std::array kOptions{"auto", "bf16", "fp8", "int8", "nvfp4"};
constexpr std::array kFlags{"0", "1"};
constexpr std::array kConfigs{"null", "scale", "key", "both"};
constexpr std::array kRunners{"auto", "deep_gemm", "flashinfer_cutedsl", "cutlass"};
constexpr std::array kDevices{"cuda", "ascend_a2", "cpu"};

std::vector<Input> AllInputs(const std::vector<std::string>& schemes) {
  std::vector<Input> inputs;
  for (const std::string& scheme : schemes) {
    for (const char* option : kOptions) {
      for (const char* flag : kFlags) {
        for (const char* config : kConfigs) {
          for (const char* runner : kRunners) {
            for (const char* device : kDevices) {
              inputs.push_back({scheme, option, flag, config, runner, device});
            }
          }
        }
      }
    }
  }
  return inputs;
}

std::vector<std::string> EveryScheme() {
  std::vector<std::string> names{"-"};
  for (const QuantSchemeInfo& info : AllQuantSchemes()) names.emplace_back(info.name);
  return names;
}

// What an order decides: "dtype@step", or "error@step" where it knows no such dtype.
using Order = std::string (*)(const OrderInputs&);

std::string Merged(const OrderInputs& inputs) {
  const OrderDecision decision = DecideDtype(inputs);
  return absl::StrCat(DispatchDtypeName(decision.dtype), "@", decision.rules[decision.winner].step);
}
std::string TextOf(const reference::SglangChoice& choice) {
  return absl::StrCat(choice.dtype ? DispatchDtypeName(*choice.dtype) : "error", "@", choice.step);
}
std::string Sglang(const OrderInputs& inputs) { return TextOf(SglangMergedOrder(inputs)); }
std::string Draft(const OrderInputs& inputs) { return TextOf(SglangDraftOrder(inputs)); }

// Holds every cell of `file` against the order, and the number of cells against the definition's.
void ExpectTable(const std::string& file, Order order, std::size_t cells) {
  const std::vector<Row> table = ReadTable(file);
  ASSERT_FALSE(table.empty()) << file;
  const Row& head = table[0];
  std::set<std::string> seen;
  for (std::size_t r = 1; r < table.size(); ++r) {
    const Row& row = table[r];
    ASSERT_EQ(row.size(), head.size()) << file << " line " << r + 1;
    for (std::size_t c = 4; c < row.size(); ++c) {
      const std::vector<std::string> place = absl::StrSplit(head[c], '/');
      const Input input{row[0], row[1], row[2], row[3], place[0], place[1]};
      EXPECT_EQ(order(input.Make()), row[c]) << input.Text();
      seen.insert(input.Text());
    }
  }
  EXPECT_EQ(seen.size(), cells) << file;
}

// R8: 5 options x 2 flags x 4 configs x 4 runners x 3 devices, as SGLang merged it. R1 - R7 are
// rows of it.
TEST(DtypeOrderTest, SglangCompatIsTheMergedTableVerbatim) {
  ExpectTable("sglang_compat.tsv", Sglang, 480);
}

// R8, R9: the same inputs in the order of the draft.
TEST(DtypeOrderTest, DraftIsTheDraftsTable) { ExpectTable("draft.tsv", Draft, 480); }

// R8: the same inputs, for a layer of unknown scheme and of each scheme.
TEST(DtypeOrderTest, MergedIsTheTableOfThisService) {
  ExpectTable("merged.tsv", Merged, 480 * EveryScheme().size());
}

// Every input on which two orders differ, as lines of the differences' files.
std::vector<std::string> Differences(Order one, Order other,
                                     const std::vector<std::string>& schemes) {
  std::vector<std::string> lines;
  for (const Input& input : AllInputs(schemes)) {
    const std::string a = one(input.Make());
    const std::string b = other(input.Make());
    if (a.substr(0, a.find('@')) == b.substr(0, b.find('@'))) continue;
    lines.push_back(absl::StrCat(input.Text(), "\t", a, "\t", b));
  }
  return lines;
}

std::vector<std::string> Lines(const std::string& file) {
  std::vector<std::string> lines;
  for (const Row& row : ReadTable(file)) lines.push_back(absl::StrJoin(row, "\t"));
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

// R9: each input on which the draft decides otherwise, with both rules.
TEST(DtypeOrderTest, EveryDifferenceOfTheDraftIsListed) {
  const auto found = Differences(Sglang, Draft, {"-"});

  EXPECT_EQ(found, Lines("differences_draft.tsv"));
  EXPECT_EQ(found.size(), 206U);
}

// R8: each input on which this service decides otherwise than SGLang, with both rules: all of them
// are inputs on which SGLang falls through to its defaults.
TEST(DtypeOrderTest, EveryDifferenceOfMergedIsListed) {
  const auto found = Differences(Sglang, Merged, EveryScheme());

  EXPECT_EQ(found, Lines("differences_merged.tsv"));
  for (const std::string& line : found) {
    const Row cells = absl::StrSplit(line, '\t');
    EXPECT_TRUE(cells[6] == "fp8@6" || cells[6] == "bf16@5") << line;
    EXPECT_THAT(cells[7], ::testing::AnyOf(HasSubstr("@3b"), HasSubstr("@5b"))) << line;
  }
}

Input Auto(const std::string& config, const std::string& runner, const std::string& device) {
  return {"-", "auto", "0", config, runner, device};
}

// R1: the option beats flag, config, runner and device.
TEST(DtypeOrderTest, TheOptionBeatsAllElse) {
  for (const char* option : {"bf16", "fp8", "int8", "nvfp4"}) {
    const Input input{"w4a8_int8", option, "1", "both", "cutlass", "ascend_a2"};
    EXPECT_EQ(Merged(input.Make()), absl::StrCat(option, "@0"));
  }
}

// R3, R5, R6, R7
TEST(DtypeOrderTest, ConfigBeatsRunnerBeatsDevice) {
  EXPECT_EQ(Merged(Auto("both", "deep_gemm", "cuda").Make()), "nvfp4@2");
  EXPECT_EQ(Merged(Auto("null", "flashinfer_cutedsl", "cuda").Make()), "bf16@4");
  EXPECT_EQ(Merged(Auto("null", "cutlass", "cuda").Make()), "bf16@4");
  EXPECT_EQ(Merged(Auto("null", "auto", "ascend_a2").Make()), "bf16@5");
  Input fp8_block = Auto("null", "deep_gemm", "cuda");
  fp8_block.scheme = "fp8_block";
  EXPECT_EQ(Merged(fp8_block.Make()), "fp8@3b");

  for (const DispatchDtype key :
       {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8, DispatchDtype::kNvfp4}) {
    for (const char* runner : kRunners) {
      for (const char* device : kDevices) {
        OrderInputs in = Auto("null", runner, device).Make();
        in.config.emplace().dispatcher_output_dtype = key;
        const OrderDecision decision = DecideDtype(in);
        EXPECT_EQ(decision.dtype, key);
        EXPECT_EQ(decision.rule(), RuleId::kLayerDtype);
      }
    }
  }
}

// R4: a scale that is null is none at all.
TEST(DtypeOrderTest, ANullScaleLeavesTheDecisionToTheRunner) {
  OrderInputs in = Auto("null", "flashinfer_cutedsl", "cuda").Make();
  in.config.emplace().global_scale_is_null = true;

  for (const Order order : {Merged, Draft, Sglang}) EXPECT_EQ(order(in), "bf16@4");
}

// R28: the alias by itself is BF16, and never FP8. SGLang's merged order does not read it.
TEST(DtypeOrderTest, TheAliasOfBf16IsRead) {
  for (const char* runner : kRunners) {
    for (const char* device : kDevices) {
      OrderInputs in = Auto("null", runner, device).Make();
      in.config.emplace().bf16_dispatch = true;
      in.scheme = QuantScheme::kFp8Block;

      const OrderDecision decision = DecideDtype(in);

      EXPECT_EQ(decision.dtype, DispatchDtype::kBf16);
      EXPECT_EQ(decision.rule(), RuleId::kLayerDtype);
    }
  }
  OrderInputs in = Auto("null", "deep_gemm", "cuda").Make();
  in.config.emplace().bf16_dispatch = true;
  EXPECT_EQ(Sglang(in), "fp8@6") << "the hole that the alias closes";
}

// R24: the flag of normal mode on Ascend is the last word before the default of NPUs, no more.
TEST(DtypeOrderTest, TheNpuFlagChangesOnlyTheFallback) {
  const auto dtype = [](const OrderInputs& in) { return DecideDtype(in).dtype; };
  OrderInputs in = Auto("null", "auto", "ascend_a2").Make();
  in.mode = DispatchMode::kNormal;
  EXPECT_EQ(dtype(in), DispatchDtype::kBf16);
  in.flags.npu_normal_int8 = "options.yaml";
  EXPECT_EQ(dtype(in), DispatchDtype::kInt8);

  OrderInputs explicit_layer = in;
  explicit_layer.requested = RequestedDtype{DispatchDtype::kBf16, "layer 3"};
  EXPECT_EQ(dtype(explicit_layer), DispatchDtype::kBf16);
  OrderInputs configured = in;
  configured.config.emplace().dispatcher_output_dtype = DispatchDtype::kBf16;
  EXPECT_EQ(dtype(configured), DispatchDtype::kBf16);
  OrderInputs known = in;
  known.scheme = QuantScheme::kNone;
  EXPECT_EQ(dtype(known), DispatchDtype::kBf16);
  OrderInputs low_latency = in;
  low_latency.mode = DispatchMode::kLowLatency;
  EXPECT_EQ(dtype(low_latency), DispatchDtype::kBf16);
  OrderInputs cuda = in;
  cuda.worker = DeviceKind::kCuda;
  EXPECT_EQ(dtype(cuda), DispatchDtype::kFp8);
}

TEST(DtypeOrderTest, HummingQuantizesByItselfToo) {
  OrderInputs in = Auto("null", "auto", "cuda").Make();
  in.runner = RunnerBackend::kHumming;

  EXPECT_EQ(Merged(in), "bf16@4");
  EXPECT_EQ(Sglang(in), "fp8@6");
}

// Every rule of the order is in the decision, with its opinion, whoever wins.
TEST(DtypeOrderTest, LosersAreKeptWithTheirCandidates) {
  Input input = Auto("both", "cutlass", "ascend_a2");
  input.option = "fp8";
  input.flag = "1";
  input.scheme = "w8a8_int8";

  const OrderDecision decision = DecideDtype(input.Make());

  std::string all;
  for (const RuleOutcome& rule : decision.rules) {
    absl::StrAppend(&all, rule.step, " ", RuleName(rule.rule), " ",
                    rule.candidate ? DispatchDtypeName(*rule.candidate) : "-", "\n");
    EXPECT_NE(rule.why, "") << rule.step;
  }
  EXPECT_EQ(decision.winner, 0U);
  EXPECT_EQ(all,
            "0 explicit fp8\n1 bf16_flag bf16\n2 global_scale nvfp4\n3 layer_dtype int8\n"
            "4 self_quantizing_runner bf16\n3b scheme int8\n5a npu_int8_flag -\n5 npu bf16\n"
            "5b cpu -\n6 default fp8\n");
}

TEST(DtypeOrderTest, OnlyADtypeWrittenForTheLayerIsExplicit) {
  const auto asked = [](const Input& input) { return DecideDtype(input.Make()).origin(); };
  Input option = Auto("null", "auto", "cuda");
  option.option = "fp8";

  EXPECT_EQ(asked(option), DtypeOrigin::kExplicit);
  EXPECT_EQ(asked(Auto("key", "auto", "cuda")), DtypeOrigin::kExplicit);
  EXPECT_EQ(asked(Auto("scale", "auto", "cuda")), DtypeOrigin::kAuto);
  EXPECT_EQ(asked(Auto("null", "auto", "cuda")), DtypeOrigin::kAuto);
}

TEST(DtypeOrderTest, NamesReadBackAndDiffer) {
  std::set<std::string> rules;
  for (int i = 0; i <= static_cast<int>(RuleId::kDefault); ++i) {
    EXPECT_TRUE(rules.insert(std::string(RuleName(static_cast<RuleId>(i)))).second);
  }
  for (int i = 0; i <= static_cast<int>(RunnerBackend::kHumming); ++i) {
    const auto runner = static_cast<RunnerBackend>(i);
    EXPECT_EQ(RunnerBackendFromName(RunnerBackendName(runner)), runner);
  }
  EXPECT_EQ(RunnerBackendFromName("triton2"), std::nullopt);
}

}  // namespace
}  // namespace switchyard
