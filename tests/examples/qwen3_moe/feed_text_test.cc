#include "examples/qwen3_moe/feed_text.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "examples/qwen3_moe/reference_moe.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;

RandomModelOptions OneLayer(std::size_t vocab, std::size_t positions) {
  return {.seed = 81,
          .layers = 1,
          .hidden = 8,
          .heads = 1,
          .kv_heads = 1,
          .head_dim = 4,
          .vocab = vocab,
          .moe_intermediate = 4,
          .max_positions = positions};
}

// The decoder over the reference, and the tokens of each call.
struct Fed {
  explicit Fed(const RandomModelOptions& options) : model(options) {
    const auto checkpoint = Checkpoint::Open(model.dir());
    decoder = *Decoder::Load(**checkpoint);
    std::shared_ptr<const ReferenceMoe> moe = *ReferenceMoe::Load(**checkpoint, decoder->dims());
    path = {.run =
                [this, inner = MakeReferenceMoe(std::move(moe))](const MoeCall& call) {
                  calls.push_back(call.tokens);
                  for (const Bf16 x : call.x) rows.push_back(x);
                  return inner(call);
                },
            .max_tokens = 512};
  }
  RandomModel model;
  std::unique_ptr<Decoder> decoder;
  std::vector<std::size_t> calls;
  std::vector<Bf16> rows;
  MoePath path;
};

std::string RandomText(std::size_t bytes) {
  SeededRng rng(82);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(rng.Below(256));
  return text;
}

TEST(FeedTextTest, FeedsEveryByteInWindowsOfTheirOwnContext) {
  Fed fed(OneLayer(256, 512));
  const std::string text = RandomText(2 * 512 + 100);

  SY_ASSERT_OK_AND_ASSIGN(const std::size_t windows, FeedText(*fed.decoder, fed.path, text));

  EXPECT_EQ(windows, 3U);
  EXPECT_THAT(fed.calls, ElementsAre(512, 512, 100));
  // The second window gives the rows that it gives alone: it has not seen the first.
  Fed alone(OneLayer(256, 512));
  SY_ASSERT_OK(FeedText(*alone.decoder, alone.path, text.substr(512, 512)));
  const std::vector<Bf16> second(fed.rows.begin() + 512 * 8, fed.rows.begin() + 1024 * 8);
  EXPECT_EQ(second, alone.rows);
}

TEST(FeedTextTest, RefusesWhatItCannotFeed) {
  Fed bytes(OneLayer(256, 512));
  EXPECT_THAT(FeedText(*bytes.decoder, bytes.path, ""),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  Fed words(OneLayer(300, 512));
  EXPECT_THAT(FeedText(*words.decoder, words.path, "text"),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  Fed short_model(OneLayer(256, 511));
  EXPECT_THAT(FeedText(*short_model.decoder, short_model.path, "text"),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
