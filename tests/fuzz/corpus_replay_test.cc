// Every input that a fuzzer has found worth keeping goes through the parsers again, in any build.
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "tests/fuzz/targets.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

// Runs `parse` on every input of a fuzzer's corpus and on beginnings of it; returns their first
// bytes.
template <typename Parse>
std::set<char> Replay(const std::string& fuzzer, int inputs_min, Parse parse) {
  const std::string folder = SY_FUZZ_CORPUS "/" + fuzzer;
  std::set<char> parsers;
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const std::string input = testing::ReadBytes(entry.path().string());
    EXPECT_FALSE(input.empty());
    parsers.insert(input.empty() ? ' ' : input[0]);
    parse(input);
    // What a shorter file would have held.
    for (std::size_t size = 0; size < input.size(); size += 1 + input.size() / 64) {
      parse(absl::string_view(input).substr(0, size));
    }
    ++inputs;
  }
  EXPECT_GE(inputs, inputs_min) << folder;
  return parsers;
}

TEST(CorpusReplayTest, EverySafetensorsHeaderEndsWithAnAnswer) {
  Replay("safetensors_header", 22, fuzz::FuzzSafetensorsHeader);
}

TEST(CorpusReplayTest, EverySafetensorsIndexEndsWithAnAnswer) {
  Replay("safetensors_index", 7, fuzz::FuzzSafetensorsIndex);
}

TEST(CorpusReplayTest, EveryModelConfigEndsWithAnAnswer) {
  Replay("model_config", 19, fuzz::FuzzModelConfig);
}

TEST(CorpusReplayTest, EveryQuantConfigEndsWithAnAnswer) {
  EXPECT_EQ(Replay("quant_config", 44, fuzz::FuzzQuantConfig),
            (std::set<char>{'a', 'c', 'd', 'h'}));
}

TEST(CorpusReplayTest, EveryTensorOfValuesEndsWithAnAnswer) {
  Replay("tensor_values", 32, fuzz::FuzzTensorValues);
}

TEST(CorpusReplayTest, EveryMessageOfAWorkerEndsWithAnAnswer) {
  Replay("register", 4, fuzz::FuzzRegister);
}

TEST(CorpusReplayTest, EveryAttachEndsWithAnAnswer) { Replay("attach", 4, fuzz::FuzzAttach); }

TEST(CorpusReplayTest, EveryFrameEndsWithAnAnswer) { Replay("frames", 4, fuzz::FuzzFrames); }

TEST(CorpusReplayTest, EveryDoorbellAndPieceEndsWithAnAnswer) {
  Replay("inbox", 4, fuzz::FuzzInbox);
}

TEST(CorpusReplayTest, EveryRingOfferEndsWithAnAnswer) {
  Replay("ring_offer", 4, fuzz::FuzzRingOffer);
}

TEST(CorpusReplayTest, EveryForwardedStepEndsWithAnAnswer) {
  Replay("forward", 4, fuzz::FuzzForward);
}

TEST(CorpusReplayTest, EveryStreamToAGatewayEndsWithAnAnswer) {
  Replay("forward_stream", 4, fuzz::FuzzForwardStream);
}

TEST(CorpusReplayTest, EveryNameEndsWithAnAnswer) {
  EXPECT_EQ(Replay("names", 11, fuzz::FuzzNames), (std::set<char>{'p', 's'}));
}

}  // namespace
}  // namespace switchyard
