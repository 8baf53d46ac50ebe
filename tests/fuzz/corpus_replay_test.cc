// Every input that a fuzzer has found worth keeping goes through the parsers again, in any build.
#include <filesystem>
#include <set>
#include <string>

#include "gtest/gtest.h"

#include "tests/fuzz/checkpoint_parsers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

TEST(CorpusReplayTest, EveryCheckpointInputEndsWithAnAnswer) {
  std::set<char> parsers;
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SY_FUZZ_CORPUS "/checkpoint")) {
    SCOPED_TRACE(entry.path().string());
    const std::string input = testing::ReadBytes(entry.path().string());
    ASSERT_FALSE(input.empty());
    parsers.insert(input[0]);
    fuzz::ParseCheckpointPart(input);
    // What a shorter file would have held.
    for (std::size_t size = 0; size < input.size(); size += 1 + input.size() / 64) {
      fuzz::ParseCheckpointPart(absl::string_view(input).substr(0, size));
    }
    ++inputs;
  }

  EXPECT_GE(inputs, 40);
  EXPECT_EQ(parsers, (std::set<char>{'c', 'h', 'i', 's'}));
}

}  // namespace
}  // namespace switchyard
