// The program itself, and what the reference package of safetensors reads of its checkpoints.

#include <cstdio>
#include <filesystem>
#include <string>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/hash.h"
#include "model/safetensors/checkpoint_tensors.h"
#include "quantize/scheme_table.h"
#include "tests/quantize/checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::ReadBytes;
using testing::TempDir;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

// Runs a shell command to its end.
Outcome RunCommand(const std::string& command) {
  const TempDir dir;
  const std::string files = absl::StrCat(" >", dir.Join("out"), " 2>", dir.Join("err"));
  const int status = std::system(absl::StrCat("{ ", command, "\n}", files).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadBytes(dir.Join("out")),
          ReadBytes(dir.Join("err"))};
}

std::string Arguments(const std::string& scheme, const TempDir& in, const std::string& out) {
  return absl::StrCat(SY_PROGRAM " --scheme ", scheme, " --in ", in.path(), " --out ", out);
}

// The output of read_back.py, computed with our own reader.
std::string OwnReading(const std::string& dir) {
  const auto tensors = CheckpointTensors::Open(dir);
  std::string lines;
  for (const std::string& name : tensors->names()) {
    const TensorInfo& tensor = *tensors->Find(name);
    std::vector<std::byte> bytes(tensor.bytes, std::byte{0x5a});
    SY_EXPECT_OK(tensors->Read(name, bytes));
    absl::StrAppend(&lines, name, "\t", TensorDtypeName(tensor.dtype), "\t",
                    absl::StrJoin(tensor.shape, ","), "\t", Sha256(bytes).ToHex(), "\n");
  }
  return lines;
}

class ReadBackTest : public ::testing::TestWithParam<std::string> {};

// R74 to R85: the reference reader finds the same tensors, bit for bit, in one file and in many.
TEST_P(ReadBackTest, TheReferencePackageReadsTheSame) {
  const TempDir in;
  const TempDir work;
  testing::WriteCheckpoint(in, {}, 21);
  SY_ASSERT_OK(WriteAmaxFile(work.Join("amax.json"), testing::RandomAmax({0, 2}, 4, 22)));
  for (const char* shards : {"", " --shard-bytes 200KB"}) {
    const std::string out = work.Join(absl::StrCat("out", *shards == '\0' ? "" : "_shards"));

    const Outcome made = RunCommand(absl::StrCat(Arguments(GetParam(), in, out), " --calibrate ",
                                                 work.Join("amax.json"), shards));
    ASSERT_EQ(made.code, 0) << made.err;
    const Outcome read = RunCommand(absl::StrCat(SY_PYTHON " " SY_READ_BACK " ", out));

    ASSERT_EQ(read.code, 0) << read.err;
    EXPECT_EQ(read.out, OwnReading(out));
    EXPECT_GT(read.out.size(), 1'000U);
  }
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const WriteScheme& scheme : WriteSchemes()) names.emplace_back(scheme.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(AllSchemes, ReadBackTest, ::testing::ValuesIn(AllNames()),
                         [](const auto& param_info) { return param_info.param; });

TEST(ProgramTest, PrintsJsonIntoAPipe) {
  const TempDir in;
  const TempDir work;
  testing::WriteCheckpoint(in, {}, 23);

  const Outcome made = RunCommand(Arguments("fp8_block", in, work.Join("out")));

  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.err, "");
  const nlohmann::json summary = nlohmann::json::parse(made.out);
  EXPECT_EQ(summary.at("scheme"), "fp8_block");
  EXPECT_EQ(summary.at("experts"), 8);
  EXPECT_EQ(nlohmann::json::parse(RunCommand(SY_PROGRAM " --list").out).size(),
            WriteSchemes().size());
}

TEST(ProgramTest, ExitCodesTellRefusalFromWrongWords) {
  const TempDir in;
  const TempDir work;
  testing::WriteCheckpoint(in, {}, 24);
  EXPECT_EQ(RunCommand(Arguments("nvfp4", in, work.Join("out"))).code, 1);
  EXPECT_EQ(RunCommand(Arguments("fp8_blok", in, work.Join("out"))).code, 2);
  EXPECT_EQ(RunCommand(SY_PROGRAM " --help").code, 0);
}

// A limit on the size of files stands for a full disk: the write fails in the same place.
TEST(ProgramTest, AFullDiskIsAnErrorThatSaysSoAndNothingStays) {
  const TempDir in;
  const TempDir work;
  testing::WriteCheckpoint(in, {}, 25);

  const Outcome made =
      RunCommand(absl::StrCat("ulimit -f 100; ", Arguments("fp8_block", in, work.Join("out"))));

  EXPECT_EQ(made.code, 1);
  EXPECT_THAT(made.err, HasSubstr("the disk is full, or a quota or size limit is reached"));
  EXPECT_THAT(made.err, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(fs::is_empty(work.path()));
}

}  // namespace
}  // namespace switchyard
