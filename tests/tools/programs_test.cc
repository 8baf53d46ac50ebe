// The programs as a user meets them: output, last lines, exit codes.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "harness/local_deployment.h"
#include "tests/model/family_checkpoints.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/golden/golden_builder.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

// Runs `program` of the build with `arguments`, as a shell would.
Ran RunProgram(absl::string_view program, absl::string_view arguments) {
  const testing::TempDir dir;
  const std::string command = absl::StrCat(SY_BIN_DIR "/", program, " ", arguments, " > ",
                                           dir.Join("out"), " 2> ", dir.Join("err"));
  const int status = std::system(command.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = testing::ReadBytes(dir.Join("out")),
          .err = testing::ReadBytes(dir.Join("err"))};
}

constexpr char kModel[] = "--moe reference --model " SY_SHIPPED_MODEL;
constexpr char kGolden[] = " --golden " SY_SHIPPED_MODEL "/golden.safetensors";
constexpr char kText[] = " --text " SY_SHIPPED_MODEL "/eval.txt";

TEST(ProgramsTest, VerifyPassesTheShippedGoldens) {
  const Ran table = RunProgram("verify", absl::StrCat(kModel, kGolden));
  const Ran json = RunProgram("verify", absl::StrCat(kModel, kGolden, " --format json"));

  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, EndsWith("verified: within bounds\n"));
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(nlohmann::json::parse(json.out)["verdict"], "pass");
}

TEST(ProgramsTest, VerifyExitsWithOneOutsideTheBounds) {
  const testing::TempDir dir;
  GoldenBuilder builder;
  const std::vector<float> in(256, 0.5F);
  const std::vector<float> out(256, 1.0F);
  const std::string golden =
      builder.Floats("x.l2.moe_in", 1, in).Floats("x.l2.moe_out", 1, out).Write(dir);

  const Ran ran = RunProgram("verify", absl::StrCat(kModel, " --golden ", golden));

  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("FAIL block x layer 2: pooled calc_diff"));
}

TEST(ProgramsTest, VerifyExitsWithTwoWhenItCannotCheck) {
  const Ran no_file = RunProgram("verify", absl::StrCat(kModel, " --golden /no/such/file"));
  const Ran not_golden = RunProgram(
      "verify",
      absl::StrCat(kModel, " --golden " SY_SHIPPED_MODEL "/model.safetensors --format json"));
  const Ran no_model =
      RunProgram("verify", absl::StrCat("--moe reference --model /no/such/model", kGolden));
  const Ran no_options = RunProgram("verify", "");

  for (const Ran* ran : {&no_file, &not_golden, &no_model, &no_options}) {
    EXPECT_EQ(ran->code, 2);
    EXPECT_THAT(ran->err, ::testing::Not(IsEmpty()));
  }
  EXPECT_THAT(no_file.err, HasSubstr("/no/such/file"));
  EXPECT_THAT(not_golden.err, HasSubstr("it has nothing to check"));
  EXPECT_EQ(nlohmann::json::parse(not_golden.out)["verdict"], "could not check");
}

// Whatever stores the experts: the rows are computed from it in double.
class VerifyRowsOfSchemeTest : public ::testing::TestWithParam<const char*> {};

// Schemes that store scales of their experts' inputs need them measured.
constexpr const char* kCalibrated[] = {"fp8_tensor_static", "modelopt_nvfp4",
                                       "compressed_tensors_nvfp4", "w4afp8"};

TEST_P(VerifyRowsOfSchemeTest, PassesWithinItsRounding) {
  const testing::TempDir dir;
  const std::string model = dir.Join("model");
  std::string calibrate;
  if (std::find(std::begin(kCalibrated), std::end(kCalibrated), std::string(GetParam())) !=
      std::end(kCalibrated)) {
    calibrate = absl::StrCat(" --calibrate ", dir.Join("amax.json"));
    const Ran measured = RunProgram(
        "generate", absl::StrCat("--model " SY_SHIPPED_MODEL " --transport loopback --workers 1 "
                                 "--prompt 'SELECT name FROM sqlite_schema' --tokens 80 "
                                 "--record-amax ",
                                 dir.Join("amax.json")));
    ASSERT_EQ(measured.code, 0) << measured.err;
  }
  const Ran made = RunProgram(
      "switchyard-quantize",
      absl::StrCat("--scheme ", GetParam(), calibrate, " --in " SY_SHIPPED_MODEL " --out ", model));
  ASSERT_EQ(made.code, 0) << made.err;

  const Ran ran =
      RunProgram("verify", absl::StrCat("--model ", model, " --rows 8 --seed 3 --workers 2",
                                        " --transport loopback --format json"));

  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  const auto report = nlohmann::json::parse(ran.out);
  EXPECT_EQ(report["verdict"], "pass");
  EXPECT_EQ(report["blocks"][0]["rows"], 8);
  EXPECT_THAT(report["notes"][0], HasSubstr("the rows name 16 of 16 experts"));
}

INSTANTIATE_TEST_SUITE_P(Schemes, VerifyRowsOfSchemeTest,
                         ::testing::Values("fp8_block", "fp8_block_ue8m0",
                                           "compressed_tensors_fp8_block", "fp8_tensor",
                                           "fp8_tensor_static", "compressed_tensors_fp8_channel",
                                           "modelopt_nvfp4", "compressed_tensors_nvfp4", "w4afp8",
                                           "compressed_tensors_int8", "modelslim_w4a8",
                                           "modelslim_w4a8_group", "modelslim_w4a4",
                                           "compressed_tensors_int4", "awq"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(ProgramsTest, VerifyChecksRandomRowsWithoutRecordedOutputs) {
  const Ran ran = RunProgram(
      "verify", "--model " SY_SHIPPED_MODEL " --rows 4 --workers 2 --transport loopback");

  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("bounds: pooled 1.5e-05, each row 2.5e-05\n"));
  EXPECT_THAT(ran.out, HasSubstr("note: the rows name 16 of 16 experts of one layer; again with"));
  EXPECT_THAT(ran.out, EndsWith("verified: within bounds\n"));
}

// The workers have one checkpoint, the check is made with another.
TEST(ProgramsTest, VerifyOfRowsFailsWhereAnExpertIsAnotherOne) {
  const testing::TempDir dir;
  std::string bytes = testing::ReadBytes(SY_SHIPPED_MODEL "/model.safetensors");
  // The names of two tensors, of equal length, change places in the header.
  const std::string one = "layers.1.mlp.experts.2.up_proj";
  const std::string two = "layers.1.mlp.experts.3.up_proj";
  const std::size_t first = bytes.find(one);
  const std::size_t second = bytes.find(two);
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  bytes.replace(first, one.size(), two).replace(second, two.size(), one);
  dir.Write("model.safetensors", bytes);
  dir.Write("config.json", testing::ReadBytes(SY_SHIPPED_MODEL "/config.json"));
  LocalDeploymentOptions deployed;
  deployed.bin_dir = SY_BIN_DIR;
  deployed.checkpoint = dir.path();
  deployed.workers = 1;
  deployed.worker_flags = {"--net-devices", "lo"};
  const auto deployment = LocalDeployment::Start(deployed);
  ASSERT_TRUE(deployment.ok()) << deployment.status();
  const auto rows = [&](int layer) {
    return RunProgram("verify", absl::StrCat("--model " SY_SHIPPED_MODEL " --rows 4 --layer ",
                                             layer, " --target ", (*deployment)->coordinator()));
  };

  const Ran wrong = rows(1);
  const Ran right = rows(2);

  EXPECT_EQ(wrong.code, 1) << wrong.err;
  EXPECT_THAT(wrong.out, HasSubstr("FAIL block random rows layer 1: pooled calc_diff"));
  EXPECT_EQ(right.code, 0) << right.out << right.err;
}

TEST(ProgramsTest, VerifyOfRowsRefusesWhatItCannotCompare) {
  const Ran none = RunProgram("verify", "--model " SY_SHIPPED_MODEL);
  const Ran both =
      RunProgram("verify", absl::StrCat("--model " SY_SHIPPED_MODEL " --rows 4", kGolden));
  const Ran self = RunProgram("verify", absl::StrCat(kModel, " --rows 4"));
  const Ran layer = RunProgram("verify", "--model " SY_SHIPPED_MODEL
                                         " --rows 4 --layer 77 --workers 1 --transport loopback");

  for (const Ran* ran : {&none, &both, &self, &layer}) EXPECT_EQ(ran->code, 2) << ran->out;
  EXPECT_THAT(self.err, HasSubstr("use --moe deployment"));
  EXPECT_THAT(layer.err, HasSubstr("77"));
}

// Before anything is deployed, so that the error does not wait for workers.
TEST(ProgramsTest, EveryProgramRefusesAModelWithoutADecoder) {
  const testing::TempDir mixtral;
  WriteFamily(testing::MixtralFamily(), mixtral);
  const std::string model = " --model " + mixtral.path();
  const Ran refused[] = {RunProgram("verify", absl::StrCat(model, kGolden)),
                         RunProgram("switchyard-eval", absl::StrCat(model, kText)),
                         RunProgram("generate", absl::StrCat(model, " --prompt a"))};

  for (const Ran& ran : refused) {
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr("UNSUPPORTED"));
    EXPECT_THAT(ran.err, HasSubstr("'mixtral'; deploy its experts (syctl apply)"));
  }
}

TEST(ProgramsTest, EvalPrintsBitsPerByteLast) {
  const Ran met = RunProgram("switchyard-eval", absl::StrCat(kModel, kText, " --windows 1"));
  ASSERT_EQ(met.code, 0) << met.err;
  const std::string last = met.out.substr(met.out.rfind('\n', met.out.size() - 2) + 1);
  EXPECT_THAT(last, ::testing::MatchesRegex("bits per byte [0-9]\\.[0-9][0-9][0-9][0-9]\n"));
  EXPECT_THAT(met.err, IsEmpty()) << "progress is for terminals";

  const std::string figure = last.substr(14, 6);
  const Ran expected =
      RunProgram("switchyard-eval", absl::StrCat(kModel, kText, " --windows 1 --expect ", figure));
  const Ran missed = RunProgram(
      "switchyard-eval", absl::StrCat(kModel, kText, " --windows 1 --expect 3 --format json"));

  EXPECT_EQ(expected.code, 0);
  EXPECT_EQ(missed.code, 1);
  EXPECT_EQ(nlohmann::json::parse(missed.out)["verdict"], "fail");
}

TEST(ProgramsTest, EvalExitsWithTwoWhenItCannotMeasure) {
  EXPECT_EQ(RunProgram("switchyard-eval", absl::StrCat(kModel, kText, " --windows 118")).code, 2);
  EXPECT_EQ(RunProgram("switchyard-eval", absl::StrCat(kModel, kText, " --windows 0")).code, 2);
  EXPECT_EQ(RunProgram("switchyard-eval", absl::StrCat(kModel, kText, " --windows -1")).code, 2);
  EXPECT_EQ(
      RunProgram("switchyard-eval", absl::StrCat(kModel, kText, " --windows 1 --expect 0")).code,
      2);
  EXPECT_EQ(RunProgram("switchyard-eval", absl::StrCat(kModel, " --text /no/such/text")).code, 2);
  EXPECT_EQ(RunProgram("switchyard-eval", absl::StrCat(kModel, " --text " SY_SHIPPED_MODEL)).code,
            2);
}

TEST(ProgramsTest, GenerateGoesOnFromThePrompt) {
  const Ran ran =
      RunProgram("generate", absl::StrCat(kModel, " --prompt 'SQLite is ' --tokens 20"));

  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "SQLite is a single content of \n");
  EXPECT_THAT(ran.err, StartsWith("prefill     10 tokens"));
}

TEST(ProgramsTest, GenerateExitsWithTwoOnBadInput) {
  EXPECT_EQ(RunProgram("generate", absl::StrCat(kModel, " --prompt '' --tokens 5")).code, 2);
  EXPECT_EQ(RunProgram("generate", absl::StrCat(kModel, " --prompt a --tokens 99999")).code, 2);
  EXPECT_EQ(RunProgram("generate", absl::StrCat(kModel, " --prompt a --top-p 2")).code, 2);
  EXPECT_EQ(RunProgram("generate", "--model " SY_SHIPPED_MODEL " --prompt a --moe magic").code, 2);
}

}  // namespace
}  // namespace switchyard::qwen3_moe
