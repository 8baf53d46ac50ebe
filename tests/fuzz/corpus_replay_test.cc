// Every input that a fuzzer has found worth keeping goes through the parsers again, in any build.
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "tests/fuzz/checkpoint_parsers.h"
#include "tests/fuzz/quant_parsers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

// Runs `parse` on every input of a folder and on beginnings of it; returns their first bytes.
template <typename Parse>
std::set<char> Replay(const std::string& folder, int inputs_min, Parse parse) {
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

TEST(CorpusReplayTest, EveryCheckpointInputEndsWithAnAnswer) {
  EXPECT_EQ(Replay(SY_FUZZ_CORPUS "/checkpoint", 40, fuzz::ParseCheckpointPart),
            (std::set<char>{'c', 'h', 'i', 's'}));
}

TEST(CorpusReplayTest, EveryQuantInputEndsWithAnAnswer) {
  EXPECT_EQ(Replay(SY_FUZZ_CORPUS "/quant", 30, fuzz::ParseQuantPart),
            (std::set<char>{'c', 'd', 'h', 'p'}));
}

}  // namespace
}  // namespace switchyard
