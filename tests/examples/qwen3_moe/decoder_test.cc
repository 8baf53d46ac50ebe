#include "examples/qwen3_moe/decoder.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "examples/qwen3_moe/reference_moe.h"
#include "tests/examples/qwen3_moe/double_model.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::Each;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;

struct Loaded {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Decoder> decoder;
  MoePath moe;
};

absl::StatusOr<Loaded> Load(const RandomModel& model, std::size_t max_tokens = 1000) {
  Loaded loaded;
  SY_ASSIGN_OR_RETURN(loaded.checkpoint, Checkpoint::Open(model.dir()));
  SY_ASSIGN_OR_RETURN(loaded.decoder, Decoder::Load(*loaded.checkpoint));
  SY_ASSIGN_OR_RETURN(std::shared_ptr<const ReferenceMoe> moe,
                      ReferenceMoe::Load(*loaded.checkpoint, loaded.decoder->dims()));
  loaded.moe = {.run = MakeReferenceMoe(std::move(moe)), .max_tokens = max_tokens};
  return loaded;
}

std::vector<std::int32_t> RandomTokens(std::size_t count, std::size_t vocab, std::uint64_t seed) {
  SeededRng rng(seed);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(rng.Below(vocab));
  return tokens;
}

// Feeds `tokens` in pieces of `piece` and returns the logits of all.
absl::StatusOr<std::vector<float>> InPieces(const Loaded& loaded,
                                            std::span<const std::int32_t> tokens,
                                            std::size_t piece) {
  KvCache cache = loaded.decoder->MakeCache(tokens.size());
  std::vector<float> all;
  for (std::size_t start = 0; start < tokens.size(); start += piece) {
    const std::size_t count = std::min(piece, tokens.size() - start);
    SY_ASSIGN_OR_RETURN(
        const std::vector<float> logits,
        loaded.decoder->Forward(
            cache, {.tokens = tokens.subspan(start, count), .logits = LogitsOf::kAll}, loaded.moe));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

TEST(DecoderTest, MatchesTheModelInDoubleOnRandomShapes) {
  const RandomModelOptions cases[] = {
      {.seed = 1},
      {.seed = 2, .tied = true, .normalize = false},
      {.seed = 3, .layers = 3, .hidden = 40, .heads = 4, .kv_heads = 1, .head_dim = 16},
      {.seed = 4, .heads = 2, .kv_heads = 2, .experts = 9, .top_k = 9, .moe_intermediate = 33},
      {.seed = 5, .layers = 1, .experts = 1, .top_k = 1, .tied = true}};
  for (const RandomModelOptions& options : cases) {
    SCOPED_TRACE(::testing::Message() << "seed " << options.seed);
    const RandomModel model(options);
    SY_ASSERT_OK_AND_ASSIGN(const Loaded loaded, Load(model));
    const std::vector<std::int32_t> tokens = RandomTokens(21, options.vocab, options.seed);

    SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, InPieces(loaded, tokens, 21));

    const auto wanted = DoubleModel(model).Logits(tokens);
    ASSERT_EQ(logits.size(), tokens.size() * options.vocab);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], wanted[i / options.vocab][i % options.vocab], 2e-2) << i;
    }
  }
}

TEST(DecoderTest, LogitsHaveTheSameBitsWholeInPiecesAndOneByOne) {
  const RandomModel model({.seed = 11});
  SY_ASSERT_OK_AND_ASSIGN(const Loaded loaded, Load(model));
  SY_ASSERT_OK_AND_ASSIGN(const Loaded small_batches, Load(model, 4));
  const std::vector<std::int32_t> tokens = RandomTokens(37, 37, 12);

  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> whole, InPieces(loaded, tokens, 37));

  for (const std::size_t piece : {1U, 2U, 5U, 16U, 36U}) {
    SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> pieces, InPieces(loaded, tokens, piece));
    EXPECT_EQ(pieces, whole) << piece;
  }
  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> batches, InPieces(small_batches, tokens, 37));
  EXPECT_EQ(batches, whole);
}

TEST(DecoderTest, LastLogitsAreThoseOfTheLastToken) {
  const RandomModel model({.seed = 13});
  SY_ASSERT_OK_AND_ASSIGN(const Loaded loaded, Load(model));
  const std::vector<std::int32_t> tokens = RandomTokens(9, 37, 14);
  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> all, InPieces(loaded, tokens, 9));
  KvCache cache = loaded.decoder->MakeCache(9);

  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> last,
                          loaded.decoder->Forward(cache, {.tokens = tokens}, loaded.moe));

  EXPECT_EQ(last, std::vector<float>(all.end() - 37, all.end()));
  EXPECT_EQ(cache.length(), 9U);
}

TEST(DecoderTest, LoadsWithoutARoutedExpertInTheCheckpoint) {
  const RandomModel model({.seed = 15, .with_experts = false});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));

  SY_ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Load(*checkpoint));

  EXPECT_EQ(decoder->tensor_names().size(), checkpoint->names().size());
}

TEST(DecoderTest, ReadsEveryTensorButTheRoutedExperts) {
  const RandomModel model({.seed = 16});
  SY_ASSERT_OK_AND_ASSIGN(const Loaded loaded, Load(model));

  const std::vector<std::string>& names = loaded.decoder->tensor_names();

  EXPECT_THAT(names, Each(Not(HasSubstr(".mlp.experts."))));
  EXPECT_EQ(names.size() + 2 * 5 * 3, loaded.checkpoint->names().size());
}

TEST(DecoderTest, AFailedPassLeavesTheSequenceAndMayBeRepeated) {
  const RandomModel model({.seed = 17});
  SY_ASSERT_OK_AND_ASSIGN(const Loaded loaded, Load(model));
  const std::vector<std::int32_t> tokens = RandomTokens(12, 37, 18);
  SY_ASSERT_OK_AND_ASSIGN(const std::vector<float> wanted, InPieces(loaded, tokens, 12));
  const MoePath broken{.run =
                           [&](const MoeCall& call) {
                             if (call.layer.value == 0) return loaded.moe.run(call);
                             return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                                              "worker w1 is gone");
                           },
                       .max_tokens = 100};
  const auto rest = std::span<const std::int32_t>(tokens).subspan(5);
  KvCache cache = loaded.decoder->MakeCache(12);
  SY_ASSERT_OK(loaded.decoder->Forward(cache, {.tokens = std::span(tokens).first(5)}, loaded.moe));

  const auto failed = loaded.decoder->Forward(cache, {.tokens = rest}, broken);
  const std::size_t length_after_failure = cache.length();
  const auto repeated = loaded.decoder->Forward(cache, {.tokens = rest}, loaded.moe);

  EXPECT_THAT(failed, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("layer 1"));
  EXPECT_EQ(length_after_failure, 5U);
  SY_ASSERT_OK(repeated);
  EXPECT_EQ(*repeated, std::vector<float>(wanted.end() - 37, wanted.end()));
}

TEST(DecoderTest, RefusesTokensThatItCannotTake) {
  const RandomModel model({.seed = 19, .max_positions = 10});
  SY_ASSERT_OK_AND_ASSIGN(const Loaded loaded, Load(model));
  const std::vector<std::int32_t> eleven(11, 1);
  const struct {
    std::vector<std::int32_t> tokens;
    std::size_t capacity;
    const char* text;
  } cases[] = {{{}, 10, "no tokens"},
               {{1, -1}, 10, "token 1 has id -1"},
               {{37}, 10, "token 0 has id 37"},
               {{1, 2, 3, 4}, 3, "room for 3 more, not 4"},
               {eleven, 100, "room for 10 more, not 11"}};
  for (const auto& c : cases) {
    KvCache cache = loaded.decoder->MakeCache(c.capacity);

    const auto result = loaded.decoder->Forward(cache, {.tokens = c.tokens}, loaded.moe);

    EXPECT_THAT(result, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(c.text));
    EXPECT_EQ(cache.length(), 0U);
  }
}

}  // namespace
}  // namespace switchyard::qwen3_moe
