// Programs that cannot start say why, with code and reason, and exit with 1.
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/processes.h"
#include "tests/testing/program.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::RunProgram;

class StartUpTest : public testing::Processes {
 protected:
  static std::string Bin(const std::string& program) {
    return std::string(testing::kBinDir) + "/" + program;
  }
};

TEST_F(StartUpTest, APortInUseIsNamedByCoordinatorAndWorker) {
  Deploy(1);
  const std::string taken = deployment_->worker_address(0);

  const ProgramResult coordinator = RunProgram({Bin("switchyard-coordinator"), "--store", "memory",
                                                "--listen", taken, "--log-format", "text"});
  const ProgramResult worker =
      RunProgram({Bin("switchyard-worker"), "--listen", taken, "--id", "w9", "--coordinator",
                  deployment_->coordinator(), "--log-format", "text"});

  for (const ProgramResult* ran : {&coordinator, &worker}) {
    EXPECT_EQ(ran->code, 1);
    EXPECT_THAT(ran->err, HasSubstr(taken));
    EXPECT_THAT(
        ran->err,
        HasSubstr(
            "choose another one, or 0 for any free port [code=UNAVAILABLE reason=ADDRESS_IN_USE]"));
  }
}

struct Damage {
  const char* name;
  std::function<void(const std::string& folder)> spoil;
  const char* says;
  const char* code;
};

void Edit(const std::string& path, const std::function<void(std::string&)>& edit) {
  std::string bytes = testing::ReadBytes(path);
  edit(bytes);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

void Replace(std::string& bytes, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  const std::size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, to.size(), to);
}

// tests/model/io/checkpoint_error_test.cc has every kind of damage; these are the ones that a copy,
// a disk or an editor makes.
const std::vector<Damage>& Damages() {
  static const std::string weights = "/model.safetensors";
  static const std::vector<Damage> damages = {
      {"cut short",
       [](const std::string& f) { std::filesystem::resize_file(f + weights, 1 << 20); },
       "it is truncated; fetch it again", "DATA_LOSS"},
      {"cut in the header",
       [](const std::string& f) { std::filesystem::resize_file(f + weights, 1000); },
       "ends behind the file of 1000; fetch the file again", "DATA_LOSS"},
      {"nothing left", [](const std::string& f) { std::filesystem::resize_file(f + weights, 3); },
       "fewer than the 8 of a header's length; fetch the file again", "DATA_LOSS"},
      {"a header of 2^56 bytes",
       [](const std::string& f) { Edit(f + weights, [](std::string& b) { b[7] = 1; }); },
       "is above the limit of 100000000; is this a safetensors file?", "DATA_LOSS"},
      {"a header that is no JSON",
       [](const std::string& f) { Edit(f + weights, [](std::string& b) { b[9] = ':'; }); },
       "the header is not valid JSON (at byte 9 of the file)", "DATA_LOSS"},
      {"a header that is no object",
       [](const std::string& f) { Edit(f + weights, [](std::string& b) { b[8] = '['; }); },
       "does not begin with '{'; is this a safetensors file?", "DATA_LOSS"},
      {"an expert's tensor under another name",
       [](const std::string& f) {
         Edit(f + weights, [](std::string& b) {
           Replace(b, "layers.3.mlp.experts.7.up_proj", "layers.3.mlp.experts.7.up_pr0j");
         });
       },
       "layers.3.mlp.experts.7.up_proj.weight': layout bf16 has this tensor", "NOT_FOUND"},
      {"a dtype that is none",
       [](const std::string& f) {
         Edit(f + weights, [](std::string& b) { Replace(b, "\"BF16\"", "\"BF61\""); });
       },
       "its dtype 'BF61' is not known", "DATA_LOSS"},
      {"no weights", [](const std::string& f) { std::filesystem::remove(f + weights); },
       "No such file or directory; check the path and its permissions", "NOT_FOUND"},
  };
  return damages;
}

TEST_F(StartUpTest, ADamagedCheckpointIsRefusedNamingTheFileAndWhatIsWrong) {
  for (const Damage& damage : Damages()) {
    SCOPED_TRACE(damage.name);
    const testing::TempDir dir;
    const std::string folder = dir.Join("model");
    std::filesystem::copy(testing::kShippedModel, folder);
    damage.spoil(folder);
    const std::string deployment =
        dir.Write("deployment.yaml", "name: d\ncheckpoint: \"" + folder + "\"\nmin_workers: 1\n");

    const ProgramResult ran =
        RunProgram({Bin("switchyard-coordinator"), "--store", "memory", "--listen", "127.0.0.1:0",
                    "--deployment", deployment, "--log-format", "text"});

    EXPECT_EQ(ran.code, 1);
    EXPECT_THAT(ran.err, HasSubstr("deployment d: " + folder));
    EXPECT_THAT(ran.err, HasSubstr(damage.says));
    EXPECT_THAT(ran.err, HasSubstr(absl::StrCat("[code=", damage.code, " reason=CHECKPOINT]")));
  }
}

}  // namespace
}  // namespace switchyard
