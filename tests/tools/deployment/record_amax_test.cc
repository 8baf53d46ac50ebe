// generate --record-amax as a user meets it: what three workers saw of the shipped model, against
// the same rows counted here, and whether switchyard-quantize takes the file.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <sys/wait.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "examples/qwen3_moe/byte_tokenizer.h"
#include "examples/qwen3_moe/feed_text.h"
#include "examples/qwen3_moe/generate.h"
#include "model/expert_weights.h"
#include "model/quant/config/amax_file.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tools/deployment/amax_record.h"
#include "tools/deployment/open_deployment.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr std::size_t kExperts = 16;
constexpr std::size_t kLayers = 4;
constexpr int kIntermediate = 128;
// Half a unit in the last of BF16's 8 bits, and as much for sums in FP32.
constexpr double kBf16Step = 1.0 / 128;

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

Ran RunGenerate(absl::string_view arguments, absl::string_view transport = "loopback") {
  const TempDir dir;
  const std::string command =
      absl::StrCat(SY_BIN_DIR "/generate --model " SY_SHIPPED_MODEL " --workers 3 --transport ",
                   transport, " ", arguments, " > ", dir.Join("out"), " 2> ", dir.Join("err"));
  const int status = std::system(command.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = testing::ReadBytes(dir.Join("out")),
          .err = testing::ReadBytes(dir.Join("err"))};
}

// The largest magnitudes by brute force, in double, from the checkpoint's own weights.
class Reference {
 public:
  Reference() : seen_(kLayers * kExperts) {
    const auto checkpoint = Checkpoint::Open(SY_SHIPPED_MODEL);
    for (std::size_t i = 0; i < kLayers * kExperts; ++i) {
      experts_.push_back(*LoadExpert(**checkpoint, LayerId{static_cast<std::int32_t>(i / kExperts)},
                                     ExpertId{static_cast<std::int32_t>(i % kExperts)}));
    }
  }
  void Count(const MoeCall& call) {
    const std::size_t hidden = call.x.size() / call.tokens;
    for (std::size_t i = 0; i < call.ids.size(); ++i) {
      const auto expert = static_cast<std::size_t>(call.layer.value) * kExperts +
                          static_cast<std::size_t>(call.ids[i]);
      AddRow(call.x.subspan(i / call.top_k * hidden, hidden), expert);
    }
  }
  [[nodiscard]] const ExpertAmax& of(std::size_t layer, std::size_t expert) const {
    return seen_[layer * kExperts + expert];
  }

 private:
  static double Dot(std::span<const Bf16> x, std::span<const Bf16> row) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += static_cast<double>(Bf16ToFloat(x[i])) * static_cast<double>(Bf16ToFloat(row[i]));
    }
    return sum;
  }
  void AddRow(std::span<const Bf16> x, std::size_t index) {
    const ExpertWeights& expert = experts_[index];
    ExpertAmax& amax = seen_[index];
    for (const Bf16 value : x) amax.gate_up = std::max(amax.gate_up, std::abs(Bf16ToFloat(value)));
    for (std::size_t n = 0; n < kIntermediate; ++n) {
      const double gate = Dot(x, std::span(expert.gate).subspan(n * x.size(), x.size()));
      const double up = Dot(x, std::span(expert.up).subspan(n * x.size(), x.size()));
      const double middle = gate / (1 + std::exp(-gate)) * up;
      amax.down = std::max(amax.down, static_cast<float>(std::abs(middle)));
    }
  }

  std::vector<ExpertWeights> experts_;
  std::vector<ExpertAmax> seen_;
};

MoePath Counted(const MoePath& path, Reference& reference) {
  return {.run =
              [&path, &reference](const MoeCall& call) {
                reference.Count(call);
                return path.run(call);
              },
          .max_tokens = path.max_tokens};
}

// Three workers that record nothing: the same rows, and the same answers, as those of the program.
class RecordAmaxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(model_, ShippedModel::Load());
    MoeOptions options;
    options.workers = 3;
    options.transport = "loopback";
    SY_ASSERT_OK_AND_ASSIGN(moe_, OpenDeployment(SY_SHIPPED_MODEL, options));
    prefill_ = Counted(moe_->prefill(), reference_);
    decode_ = Counted(moe_->decode(), reference_);
  }
  void ExpectFileOfTheReference(const std::string& path) {
    SY_ASSERT_OK_AND_ASSIGN(const AmaxTable table, ReadAmaxFile(path));
    ASSERT_EQ(table.layers.size(), kLayers);
    std::size_t seen = 0;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(table.layers[layer].experts.size(), kExperts);
      for (std::size_t expert = 0; expert < kExperts; ++expert) {
        const ExpertAmax& found = table.layers[layer].experts[expert];
        const ExpertAmax& wanted = reference_.of(layer, expert);
        seen += wanted.gate_up > 0 ? 1 : 0;
        EXPECT_EQ(found.gate_up, wanted.gate_up) << "layer " << layer << " expert " << expert;
        EXPECT_NEAR(found.down, wanted.down, kBf16Step * static_cast<double>(wanted.down))
            << "layer " << layer << " expert " << expert;
      }
    }
    EXPECT_GT(seen, kLayers * kExperts / 2) << "the text is too short to say anything";
  }

  Reference reference_;
  std::unique_ptr<ShippedModel> model_;
  std::unique_ptr<MoeProvider> moe_;
  MoePath prefill_;
  MoePath decode_;
  TempDir work_;
};

TEST_F(RecordAmaxTest, APromptAndWhatFollowsAreRecordedFromBothSessions) {
  const std::string file = work_.Join("amax.json");
  const std::vector<std::int32_t> prompt = EncodeBytes("The CREATE TABLE statement ");
  const SteadyClock clock;
  GenerateOptions options;
  options.prompt = prompt;
  options.tokens = 30;
  SY_ASSERT_OK(Generate(
      {.decoder = *model_->decoder, .prefill = prefill_, .decode = decode_, .clock = clock},
      options));

  const Ran ran =
      RunGenerate(absl::StrCat("--prompt 'The CREATE TABLE statement ' "
                               "--tokens 30 --record-amax ",
                               file));

  ASSERT_EQ(ran.code, 0) << ran.err;
  ExpectFileOfTheReference(file);
}

TEST_F(RecordAmaxTest, ATextIsFedInWindowsAndTheFileCalibratesEverySchemeThatAsks) {
  const std::string file = work_.Join("amax.json");
  const std::string text = testing::ReadBytes(ShippedFile("eval.txt")).substr(0, 700);
  SY_ASSERT_OK(FeedText(*model_->decoder, prefill_, text));

  const Ran ran =
      RunGenerate(absl::StrCat("--text ", work_.Write("text", text), " --record-amax ", file));

  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("fed        700 bytes in 2 windows"));
  ExpectFileOfTheReference(file);
  for (const char* scheme : {"modelopt_nvfp4", "w4afp8", "fp8_tensor_static"}) {
    const std::string command = absl::StrCat(
        SY_BIN_DIR "/switchyard-quantize --scheme ", scheme, " --in " SY_SHIPPED_MODEL, " --out ",
        work_.Join(scheme), " --calibrate ", file, " > ", work_.Join("said"));
    EXPECT_EQ(std::system(command.c_str()), 0) << scheme;
    EXPECT_EQ(nlohmann::json::parse(testing::ReadBytes(work_.Join("said")))["scheme"], scheme);
    SY_ASSERT_OK_AND_ASSIGN(const auto quantized, Checkpoint::Open(work_.Join(scheme)));
    EXPECT_THAT(QuantizedWarning(*quantized), HasSubstr("4 layers are already quantized"));
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto shipped, Checkpoint::Open(SY_SHIPPED_MODEL));
  EXPECT_EQ(QuantizedWarning(*shipped), "");
}

TEST(RecordAmaxRefusalTest, OverAGatewayFromTheReferenceAndIntoNoFolder) {
  const TempDir work;
  const std::string file = work.Join("amax.json");
  const Ran gateway = RunGenerate(absl::StrCat("--prompt a --record-amax ", file), "gateway");
  const Ran reference =
      RunGenerate(absl::StrCat("--prompt a --moe reference --record-amax ", file));
  const Ran folder = RunGenerate("--prompt a --tokens 1 --record-amax /no/such/folder/amax.json");
  const Ran both = RunGenerate("--prompt a --text b");
  const Ran neither = RunGenerate("--tokens 3");

  for (const Ran* ran : {&gateway, &reference, &folder, &both, &neither}) EXPECT_EQ(ran->code, 2);
  EXPECT_THAT(gateway.err, HasSubstr("cannot be recorded over a gateway"));
  EXPECT_THAT(reference.err, HasSubstr("the reference cannot record magnitudes"));
  EXPECT_THAT(folder.err, HasSubstr("/no/such/folder/amax.json"));
  EXPECT_EQ(folder.out, "");  // found before anything ran
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
