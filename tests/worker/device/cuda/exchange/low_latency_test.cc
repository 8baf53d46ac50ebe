// Dispatch and combine between ranks of one process: on one GPU, which they share, or on as many as
// there are, by the kernels for few tokens and for many. Skipped without a GPU, except where only
// arguments are checked.
#include "worker/device/cuda/exchange/low_latency.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/cuda/exchange_group.h"
#include "worker/device/cuda/exchange/normal.h"

namespace switchyard::cuda {
namespace {

using testing::ExchangeGroup;
using testing::ExpectedToken;
using testing::RandomTokens;
using testing::RankTokens;
using testing::WireForms;

constexpr std::uint64_t kPatience = 2'000'000'000;  // ns

int Devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

#define REQUIRE_DEVICE() \
  if (Devices() == 0) GTEST_SKIP() << "no CUDA device"

void RunStep(ExchangeGroup& group) {
  if (group.shape().by_messages) return group.StepByMessages();
  for (int r = 0; r < group.ranks(); ++r) group.Dispatch(r);
  for (int r = 0; r < group.ranks(); ++r) group.Experts(r);
  for (int r = 0; r < group.ranks(); ++r) group.Combine(r);
  group.Synchronize();
}

void ExpectAnswers(const ExchangeGroup& group, const std::vector<RankTokens>& tokens,
                   const std::string& where) {
  const auto hidden = static_cast<std::size_t>(group.shape().hidden);
  for (int r = 0; r < group.ranks(); ++r) {
    EXPECT_EQ(group.State(r).fault, 0U) << where << ", rank " << r;
    EXPECT_EQ(group.WrongLists(r, tokens), "") << where << ", rank " << r;
    const auto out = group.Out(r);
    const RankTokens& own = tokens[static_cast<std::size_t>(r)];
    constexpr int kCheckedMax = 256;
    for (int t = 0; t < own.tokens; t += 1 + own.tokens / (kCheckedMax + 1)) {
      const auto begin = out.begin() + static_cast<std::ptrdiff_t>(hidden) * t;
      const std::vector<std::uint16_t> got(begin, begin + static_cast<std::ptrdiff_t>(hidden));
      ASSERT_EQ(got, ExpectedToken(group.shape(), group.forms(), own, t))
          << where << ", rank " << r << ", token " << t;
    }
    // What a step does not have stays as it was.
    for (std::size_t at = hidden * static_cast<std::size_t>(own.tokens); at < out.size(); ++at) {
      ASSERT_EQ(out[at], 0xeeee) << where << ", rank " << r << ", value " << at;
    }
  }
}

struct Sizes {
  const char* name;
  ExchangeShape shape;
  float global_scale = 1.0F;
  AnswerFormat answers = AnswerFormat::kBf16;
};
void SetForms(const Sizes& sizes, ExchangeGroup& group) {
  WireForms forms = group.forms();
  forms.global_scale = sizes.global_scale;
  forms.answers = sizes.answers;
  group.SetForms(forms);
}

// The formats of the shape in turn.
void TakeAFormat(const ExchangeShape& shape, int step, ExchangeGroup& group) {
  std::vector<ExchangeFormat> formats;
  for (int f = 0; f < kExchangeFormats; ++f) {
    const auto format = static_cast<ExchangeFormat>(f);
    if (shape.formats.Has(format)) formats.push_back(format);
  }
  WireForms forms = group.forms();
  forms.format = formats[static_cast<std::size_t>(step) % formats.size()];
  group.SetForms(forms);
}

class ExchangeKernelsTest : public ::testing::TestWithParam<Sizes> {};

// Goal: any number of tokens on each rank, any routing, one step after the other. Every value is
// predicted.
TEST_P(ExchangeKernelsTest, GivesEachTokenTheSumOfItsExperts) {
  REQUIRE_DEVICE();
  const ExchangeShape& shape = GetParam().shape;
  std::mt19937_64 random(7);
  ExchangeGroup group(shape, Devices(), kPatience);
  SetForms(GetParam(), group);
  for (int step = 0; step < 10; ++step) {
    const int cover =
        step == 0 ? shape.tokens_max
                  : 1 + static_cast<int>(random() % static_cast<unsigned>(shape.tokens_max));
    std::vector<RankTokens> tokens;
    for (int r = 0; r < shape.ranks; ++r) {
      const int count = step == 0   ? shape.tokens_max
                        : step == 1 ? 0
                                    : static_cast<int>(random() % static_cast<unsigned>(cover + 1));
      tokens.push_back(RandomTokens(shape, count, step % 3 == 2 ? 0.5 : 0.0, random));
      group.SetTokens(r, tokens.back(), cover);
      group.PoisonOut(r);
    }
    TakeAFormat(shape, step, group);

    RunStep(group);

    ExpectAnswers(group, tokens, "step " + std::to_string(step));
    if (HasFatalFailure()) return;
  }
}

// Experts that are not in order on their ranks: what comes of it is what comes of ids that are
// places.
TEST_P(ExchangeKernelsTest, ExpertsMayBeAnywhere) {
  REQUIRE_DEVICE();
  const ExchangeShape& shape = GetParam().shape;
  std::mt19937_64 random(19);
  ExchangeGroup group(shape, Devices(), kPatience);
  SetForms(GetParam(), group);
  std::vector<std::int32_t> places(static_cast<std::size_t>(ExpertsOf(shape)));
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random);
  group.SetPlaces(places);
  for (int step = 0; step < 4; ++step) {
    std::vector<RankTokens> by_place;
    for (int r = 0; r < shape.ranks; ++r) {
      RankTokens tokens = RandomTokens(shape, shape.tokens_max, 0.2, random);
      group.SetTokens(r, tokens, shape.tokens_max);
      group.PoisonOut(r);
      for (std::int32_t& id : tokens.ids) {
        if (id >= 0) id = places[static_cast<std::size_t>(id)];
      }
      by_place.push_back(std::move(tokens));
    }

    RunStep(group);

    ExpectAnswers(group, by_place, "step " + std::to_string(step));
    if (HasFatalFailure()) return;
  }
}

// Rows and sums of NaN must not look like memory that nothing has landed in.
TEST_P(ExchangeKernelsTest, ValuesThatAreNotFiniteArrive) {
  REQUIRE_DEVICE();
  const ExchangeShape& shape = GetParam().shape;
  std::mt19937_64 random(11);
  ExchangeGroup group(shape, Devices(), kPatience);
  SetForms(GetParam(), group);
  std::vector<RankTokens> tokens;
  const int count = std::min(shape.tokens_max, 4);
  for (int r = 0; r < shape.ranks; ++r) {
    RankTokens own = RandomTokens(shape, count, 0.0, random);
    // A row of the BF16 that all bits are set in, one with a NaN and one with an infinity.
    const auto row = [&](int t) { return own.x.begin() + std::ptrdiff_t{t} * shape.hidden; };
    std::fill(row(0), row(0) + shape.hidden, std::uint16_t{0xffff});
    if (count > 2) *(row(1) + 5) = 0x7fc1, *(row(2) + shape.hidden - 1) = 0xff80;
    // What memory holds that nothing has landed in, read as BF16.
    if (count > 3) {
      for (int c = 0; c < shape.hidden; c += 2) *(row(3) + c) = 0xff80, *(row(3) + c + 1) = 0xffff;
    }
    tokens.push_back(own);
    group.SetTokens(r, own, count);
    group.PoisonOut(r);
  }

  RunStep(group);

  for (int r = 0; r < shape.ranks; ++r) {
    ASSERT_EQ(group.State(r).fault, 0U);
    const auto out = group.Out(r);
    for (int t = 0; t < count; ++t) {
      const auto wanted =
          ExpectedToken(shape, group.forms(), tokens[static_cast<std::size_t>(r)], t);
      for (std::size_t c = 0; c < wanted.size(); ++c) {
        const std::uint16_t got = out[static_cast<std::size_t>(t * shape.hidden) + c];
        const bool nan = (wanted[c] & 0x7fffU) > 0x7f80;
        if (nan) {
          ASSERT_GT(got & 0x7fffU, 0x7f80U) << "rank " << r << ", token " << t << ", " << c;
        } else {
          ASSERT_EQ(got, wanted[c]) << "rank " << r << ", token " << t << ", " << c;
        }
      }
    }
  }
}

TEST_P(ExchangeKernelsTest, AGraphGivesTheSameBitsHoweverOftenItRuns) {
  REQUIRE_DEVICE();
  const ExchangeShape& shape = GetParam().shape;
  if (shape.by_messages) GTEST_SKIP() << "messages do not travel in these tests' graphs";
  constexpr int kReplays = 1000;
  // A kernel that waits for the one before it has its place on the GPU already, which on a GPU that
  // ranks share another rank's kernel needs.
  const bool dependent = Devices() >= shape.ranks;
  std::mt19937_64 random(3);
  ExchangeGroup group(shape, Devices(), kPatience);
  SetForms(GetParam(), group);
  std::vector<RankTokens> tokens;
  std::vector<cudaGraphExec_t> graphs;
  for (int r = 0; r < shape.ranks; ++r) {
    tokens.push_back(RandomTokens(shape, shape.tokens_max - r % 2, 0.1, random));
    group.SetTokens(r, tokens.back(), shape.tokens_max);
    group.PoisonOut(r);
    cudaGraph_t graph = nullptr;
    graphs.emplace_back();
    ASSERT_EQ(cudaStreamBeginCapture(group.stream(r), cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    group.Dispatch(r);
    group.Experts(r, dependent);
    group.Combine(r, dependent);
    ASSERT_EQ(cudaStreamEndCapture(group.stream(r), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&graphs.back(), graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  for (int i = 0; i < kReplays; ++i) {
    for (int r = 0; r < shape.ranks; ++r) {
      group.Select(r);
      ASSERT_EQ(cudaGraphLaunch(graphs[static_cast<std::size_t>(r)], group.stream(r)), cudaSuccess);
    }
    if (i % 100 != 99) continue;
    group.Synchronize();
    ExpectAnswers(group, tokens, "replay " + std::to_string(i));
    if (HasFatalFailure()) return;
    for (int r = 0; r < shape.ranks; ++r) group.PoisonOut(r);
  }
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
}

// Sizes that all ranks' kernels can run at once on one GPU.
ExchangeShape ShapeOf(int ranks, int tokens, int hidden, int top_k, int experts,
                      ExchangeFormatSet formats, ExchangeUnit unit = ExchangeUnit::kPerWorker) {
  return {.ranks = ranks,
          .tokens_max = tokens,
          .hidden = hidden,
          .top_k = top_k,
          .experts_of_rank = experts,
          .formats = formats,
          .unit = unit};
}
ExchangeShape OfExperts(int expert_ranks, ExchangeShape shape) {
  shape.expert_ranks = expert_ranks;
  return shape;
}
ExchangeShape ByMessages(ExchangeShape shape) {
  shape.by_messages = true;
  return shape;
}
ExchangeFormatSet AllFormats() {
  ExchangeFormatSet all;
  for (int f = 0; f < kExchangeFormats; ++f) all.Add(static_cast<ExchangeFormat>(f));
  return all;
}
INSTANTIATE_TEST_SUITE_P(
    Shapes, ExchangeKernelsTest,
    ::testing::Values(
        Sizes{"OneRank", ShapeOf(1, 128, 2048, 8, 128, ExchangeFormat::kFp8)},
        Sizes{"TwoOfDeepSeek", ShapeOf(2, 64, 7168, 8, 128, ExchangeFormat::kFp8)},
        Sizes{"TwoOfDeepSeekBf16", ShapeOf(2, 64, 7168, 8, 128, ExchangeFormat::kBf16)},
        Sizes{"FourOfQwen", ShapeOf(4, 32, 2048, 8, 32, ExchangeFormat::kFp8)},
        Sizes{"FourOfQwenBf16", ShapeOf(4, 32, 2048, 8, 32, ExchangeFormat::kBf16)},
        Sizes{"EightOfSqlite", ShapeOf(8, 24, 256, 4, 2, ExchangeFormat::kFp8)},
        Sizes{"ThreeWithManyChoices", ShapeOf(3, 16, 640, 16, 171, ExchangeFormat::kBf16)},
        Sizes{"OneChoice", ShapeOf(5, 7, 128, 1, 1, ExchangeFormat::kFp8)},
        Sizes{"TwoPerExpert",
              ShapeOf(2, 64, 7168, 8, 128, ExchangeFormat::kFp8, ExchangeUnit::kPerExpert)},
        Sizes{"FourPerExpert",
              ShapeOf(4, 16, 2048, 8, 32, ExchangeFormat::kBf16, ExchangeUnit::kPerExpert)},
        Sizes{"SevenPerExpert",
              ShapeOf(7, 9, 384, 13, 2, ExchangeFormat::kFp8, ExchangeUnit::kPerExpert)},
        Sizes{"OddChoices", ShapeOf(2, 33, 4096, 7, 64, ExchangeFormat::kFp8)},
        Sizes{"FewInInt8", ShapeOf(2, 40, 7168, 8, 32, ExchangeFormat::kInt8)},
        Sizes{"FewInNvfp4", ShapeOf(2, 40, 7168, 8, 32, ExchangeFormat::kNvfp4), 13.5F},
        Sizes{"FewInPowersOfTwo", ShapeOf(2, 40, 2048, 8, 32, ExchangeFormat::kFp8Pow2)},
        Sizes{"NarrowInNvfp4",
              ShapeOf(3, 20, 384, 4, 4, ExchangeFormat::kNvfp4, ExchangeUnit::kPerExpert), 3.0F},
        Sizes{"FewInAllFormats", ShapeOf(3, 24, 1152, 4, 8, AllFormats()), 13.5F},
        Sizes{"FewInAllFormatsPerExpert",
              ShapeOf(2, 24, 640, 4, 8, AllFormats(), ExchangeUnit::kPerExpert), 13.5F},
        Sizes{"FewWithoutExperts", OfExperts(2, ShapeOf(4, 24, 2048, 8, 64, ExchangeFormat::kFp8))},
        Sizes{"FewWithoutExpertsPerExpert",
              OfExperts(1, ShapeOf(3, 24, 1152, 4, 8, AllFormats(), ExchangeUnit::kPerExpert)),
              13.5F},
        Sizes{"ManyWithoutExperts",
              OfExperts(3, ShapeOf(4, 700, 2048, 8, 32, ExchangeFormat::kBf16))},
        Sizes{"ManyOfOneRank", ShapeOf(1, 600, 2048, 8, 128, ExchangeFormat::kFp8)},
        Sizes{"ManyOfTwoOfDeepSeek", ShapeOf(2, 515, 7168, 8, 128, ExchangeFormat::kFp8)},
        Sizes{"ManyOfTwoBf16", ShapeOf(2, 1025, 2560, 5, 40, ExchangeFormat::kBf16)},
        Sizes{"ManyOfFourOfQwen", ShapeOf(4, 1500, 2048, 8, 32, ExchangeFormat::kFp8)},
        Sizes{"ManyOfEightOfSqlite", ShapeOf(8, 300, 256, 4, 2, ExchangeFormat::kFp8)},
        Sizes{"ManyWithManyChoices", ShapeOf(3, 257, 640, 16, 171, ExchangeFormat::kBf16)},
        Sizes{"MostOfARank", ShapeOf(2, 8192, 128, 8, 512, ExchangeFormat::kFp8)},
        Sizes{"ManyInInt8", ShapeOf(2, 400, 7168, 8, 32, ExchangeFormat::kInt8)},
        Sizes{"ManyInNvfp4", ShapeOf(2, 700, 7168, 8, 32, ExchangeFormat::kNvfp4), 13.5F},
        Sizes{"ManyInAllFormats", ShapeOf(3, 300, 1152, 4, 8, AllFormats()), 13.5F},
        Sizes{"ManyBothWaysInFp8", ShapeOf(2, 515, 7168, 8, 32, ExchangeFormat::kFp8), 1.0F,
              AnswerFormat::kFp8},
        Sizes{"NarrowBothWaysInFp8", ShapeOf(4, 300, 384, 4, 8, ExchangeFormat::kBf16), 1.0F,
              AnswerFormat::kFp8},
        Sizes{"MessagesOfOneRank", ByMessages(ShapeOf(1, 40, 2048, 8, 128, ExchangeFormat::kFp8))},
        Sizes{"FewByMessages", ByMessages(ShapeOf(2, 64, 7168, 8, 128, ExchangeFormat::kFp8))},
        Sizes{"ManyByMessages", ByMessages(ShapeOf(4, 1500, 2048, 8, 32, ExchangeFormat::kBf16))},
        Sizes{"AllFormatsByMessages", ByMessages(ShapeOf(3, 24, 1152, 4, 8, AllFormats())), 13.5F},
        Sizes{"MessagesWithoutExperts",
              ByMessages(OfExperts(2, ShapeOf(4, 300, 2048, 8, 64, ExchangeFormat::kFp8)))},
        Sizes{"MessagesBothWaysInFp8",
              ByMessages(ShapeOf(2, 515, 7168, 8, 32, ExchangeFormat::kFp8)), 1.0F,
              AnswerFormat::kFp8}),
    [](const auto& param) { return std::string(param.param.name); });

// Goal: a rank that does not come costs the others their patience once, and is named.
class ExchangeFaultTest : public ::testing::TestWithParam<int> {};

TEST_P(ExchangeFaultTest, ARankThatDoesNotComeIsNamedAndSkippedFromThenOn) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(3, GetParam(), 2048, 4, 8, ExchangeFormat::kFp8);
  constexpr std::uint64_t kShort = 50'000'000;
  std::mt19937_64 random(5);
  ExchangeGroup group(shape, Devices(), kShort);
  for (int r = 0; r < 3; ++r) group.SetTokens(r, RandomTokens(shape, 16, 0.0, random), 16);
  RunStep(group);
  ASSERT_EQ(group.State(0).fault, 0U);

  const auto step = [&group] {
    const auto begin = std::chrono::steady_clock::now();
    for (const int r : {0, 2}) {
      group.Dispatch(r);
      group.Experts(r);
      group.Combine(r);
    }
    group.Synchronize();
    return std::chrono::steady_clock::now() - begin;
  };
  const auto first = step();
  const auto second = step();

  for (const int r : {0, 2}) {
    const ExchangeState state = group.State(r);
    EXPECT_EQ(state.fault, static_cast<std::uint32_t>(ExchangeFault::kTimeout)) << r;
    EXPECT_EQ(state.fault_rank, 1U) << r;
    EXPECT_EQ(state.fault_step, 1U) << r;
    EXPECT_EQ(state.lost, 0b10U) << r;
    EXPECT_EQ(state.dispatch_parts, 3 * kExchangeParts) << r;
    EXPECT_EQ(state.combine_parts, 3 * kExchangeParts) << r;
  }
  EXPECT_GE(first, std::chrono::nanoseconds(kShort));
  EXPECT_LT(first, std::chrono::nanoseconds(kShort) + std::chrono::milliseconds(20));
  EXPECT_LT(second, std::chrono::milliseconds(20));
}

// Goal: it does not take what the others have left of an earlier step for their answers.
TEST_P(ExchangeFaultTest, ARankThatComesWhenOthersHaveGivenItUpLearnsIt) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(3, GetParam(), 2048, 4, 8, ExchangeFormat::kFp8);
  std::mt19937_64 random(5);
  ExchangeGroup group(shape, Devices(), 50'000'000);
  for (int r = 0; r < 3; ++r) group.SetTokens(r, RandomTokens(shape, 16, 0.0, random), 16);
  RunStep(group);
  const auto step = [&group](int rank) {
    group.Dispatch(rank);
    group.Experts(rank);
    group.Combine(rank);
  };
  step(0);
  step(2);
  group.Synchronize();

  step(1);
  group.Synchronize();

  EXPECT_EQ(group.State(1).fault, static_cast<std::uint32_t>(ExchangeFault::kTimeout));
  EXPECT_EQ(group.State(1).fault_step, 1U);
}

TEST_P(ExchangeFaultTest, RanksThatDisagreeAboutTheStepSaySo) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(2, GetParam(), 2048, 4, 8, ExchangeFormat::kFp8);
  std::mt19937_64 random(5);
  ExchangeGroup group(shape, Devices(), kPatience);
  group.SetTokens(0, RandomTokens(shape, 4, 0.0, random), 8);
  group.SetTokens(1, RandomTokens(shape, 4, 0.0, random), 16);

  RunStep(group);

  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(group.State(r).fault, static_cast<std::uint32_t>(ExchangeFault::kMismatch));
    EXPECT_EQ(group.State(r).fault_rank, static_cast<std::uint32_t>(1 - r));
  }
}

TEST_P(ExchangeFaultTest, RanksThatDisagreeAboutTheFormatSaySo) {
  REQUIRE_DEVICE();
  ExchangeFormatSet formats = ExchangeFormat::kFp8;
  formats.Add(ExchangeFormat::kNvfp4);
  const ExchangeShape shape = ShapeOf(2, GetParam(), 2048, 4, 8, formats);
  const WireForms nvfp4{.format = ExchangeFormat::kNvfp4, .global_scale = 2.0F};
  WireForms rescaled = nvfp4;
  rescaled.global_scale = 3.0F;
  for (const WireForms& other : {WireForms{.format = ExchangeFormat::kFp8}, rescaled}) {
    std::mt19937_64 random(5);
    ExchangeGroup group(shape, Devices(), kPatience);
    for (int r = 0; r < 2; ++r) group.SetTokens(r, RandomTokens(shape, 16, 0.0, random), 16);
    group.SetFormsOf(0, nvfp4);
    group.SetFormsOf(1, other);

    RunStep(group);

    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(group.State(r).fault, static_cast<std::uint32_t>(ExchangeFault::kMismatch)) << r;
    }
  }
}

TEST_P(ExchangeFaultTest, RanksThatDisagreeAboutTheLayerSaySo) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(2, GetParam(), 2048, 4, 8, ExchangeFormat::kFp8);
  std::mt19937_64 random(5);
  ExchangeGroup group(shape, Devices(), kPatience);
  for (int r = 0; r < 2; ++r) {
    group.SetTokens(r, RandomTokens(shape, 16, 0.0, random), 16);
    group.SetLayerOf(r, r);
  }

  RunStep(group);

  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(group.State(r).fault, static_cast<std::uint32_t>(ExchangeFault::kMismatch)) << r;
  }
}

// Goal: the host hears of it while others are still waited for, and of which wait it was.
TEST_P(ExchangeFaultTest, ARankThatIsGoneIsReportedWhileAnotherIsLate) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(3, GetParam(), 2048, 4, 8, ExchangeFormat::kFp8);
  std::mt19937_64 random(5);
  ExchangeGroup group(shape, Devices(), kPatience);
  for (int r = 0; r < 3; ++r) group.SetTokens(r, RandomTokens(shape, 16, 0.0, random), 16);
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocHost(&memory, sizeof(ExchangeReport)), cudaSuccess);
  auto* const report = new (memory) ExchangeReport;
  group.SetReport(0, report);
  const auto begun = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::steady_clock::now() - begun; };

  std::atomic_ref<std::uint32_t>(report->gone).store(1U << 2);
  group.Dispatch(0);
  const std::atomic_ref<std::uint32_t> fault(report->fault);
  while (fault.load() == 0 && waited() < 2 * std::chrono::nanoseconds(kPatience)) {
  }

  EXPECT_LT(waited(), std::chrono::nanoseconds(kPatience) / 2);
  EXPECT_EQ(report->rank, 2U);
  EXPECT_EQ(report->awaited, IsNormal(shape) ? 1U : 0U);
  group.Synchronize();
  cudaFreeHost(memory);
}

// Goal: any step may leave packets, rows and words where a later one has none.
class ExchangeNumbersTest : public ::testing::TestWithParam<int> {
 protected:
  // Three steps, in which all ranks, or all but one, have tokens.
  static void MakeSteps(ExchangeGroup& group, bool all, std::mt19937_64& random) {
    for (int step = 0; step < kExchangeBuffers; ++step) {
      std::vector<RankTokens> tokens;
      for (int r = 0; r < group.ranks(); ++r) {
        const int count = all ? 16 : r == step ? 0 : 3;
        tokens.push_back(RandomTokens(group.shape(), count, 0.0, random));
        group.SetTokens(r, tokens.back(), 16);
        group.PoisonOut(r);
      }

      RunStep(group);

      ExpectAnswers(group, tokens, "step " + std::to_string(step));
    }
  }
};

TEST_P(ExchangeNumbersTest, WhatIsLeftOfEarlierStepsDoesNotCount) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(3, GetParam(), 2048, 4, 8, ExchangeFormat::kFp8);
  std::mt19937_64 random(29);
  for (const int bits : {8, 16, 24, 29}) {  // where marks of so many bits come again
    ExchangeGroup group(shape, Devices(), kPatience);
    MakeSteps(group, true, random);
    group.SetStepsMade(std::uint64_t{kExchangeBuffers} << bits);
    MakeSteps(group, false, random);
    if (HasFailure()) FAIL() << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(TokensMax, ExchangeNumbersTest, ::testing::Values(16, 400));

// Eight codes of E2M1 in a row may be what memory holds that nothing has landed in: they arrive as
// equal values.
TEST(ExchangePoisonTest, CodesThatLookLikeNothingArrive) {
  REQUIRE_DEVICE();
  const ExchangeShape shape = ShapeOf(2, 16, 256, 2, 1, ExchangeFormat::kNvfp4);
  std::mt19937_64 random(5);
  ExchangeGroup group(shape, Devices(), kPatience);
  std::vector<RankTokens> tokens;
  for (int r = 0; r < 2; ++r) {
    RankTokens own = RandomTokens(shape, 4, 0.0, random);
    // 0, -0 and six of -6: 0xffffff80.
    for (std::size_t c = 0; c < own.x.size(); ++c) {
      own.x[c] = c % 8 == 0 ? 0x0000 : c % 8 == 1 ? 0x8000 : 0xc0c0;
    }
    group.SetTokens(r, own, 4);
    group.PoisonOut(r);
    tokens.push_back(own);
  }

  for (int step = 0; step < 4; ++step) RunStep(group);

  ExpectAnswers(group, tokens, "codes of poison");
}

INSTANTIATE_TEST_SUITE_P(TokensMax, ExchangeFaultTest, ::testing::Values(16, 400));

// A sum at the source does not depend on which ranks have the experts.
TEST(LowLatencyUnitTest, SumsPerExpertAreTheSameBitsWhereverExpertsAre) {
  REQUIRE_DEVICE();
  std::mt19937_64 random(13);
  RankTokens tokens;
  std::vector<std::uint16_t> first;
  for (const int ranks : {1, 2, 3, 6}) {
    const ExchangeShape shape =
        ShapeOf(ranks, 12, 2048, 6, 24 / ranks, ExchangeFormat::kFp8, ExchangeUnit::kPerExpert);
    if (ranks == 1) tokens = RandomTokens(shape, 12, 0.0, random);
    ExchangeGroup group(shape, Devices(), kPatience);
    for (int r = 0; r < ranks; ++r) group.SetTokens(r, tokens, 12);

    RunStep(group);

    if (ranks == 1) first = group.Out(0);
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(group.Out(r), first) << r << " of " << ranks;
  }
}

class ExchangeArgumentsTest : public ::testing::TestWithParam<int> {};

TEST_P(ExchangeArgumentsTest, StepsThatNoGroupHasAreRefused) {
  const int most = GetParam();
  ExchangeRank rank;
  rank.shape = ShapeOf(2, most, 2048, 4, 8, ExchangeFormat::kFp8);
  rank.layout = LayoutOf(rank.shape);
  std::uint64_t place[4] = {};  // nothing is launched, so any address will do
  auto* const memory = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(place) + 15) &
                                                    ~std::uintptr_t{15});
  rank.heaps[0] = rank.heaps[1] = memory;
  rank.state = reinterpret_cast<ExchangeState*>(memory);
  auto* const numbers = reinterpret_cast<std::int32_t*>(memory);
  ExchangeStep step;
  step.cover = 8;
  step.tokens = 8;
  step.x = reinterpret_cast<std::uint16_t*>(memory);
  step.ids = numbers;
  step.weights = reinterpret_cast<float*>(memory);
  step.rows = {numbers, numbers, numbers, numbers, reinterpret_cast<float*>(memory)};
  const auto refused = [&](const ExchangeRank& of, const ExchangeStep& what) {
    auto* const out = reinterpret_cast<std::uint16_t*>(memory);
    return (most > kExchangeTokensMax ||
            (DispatchLowLatency(of, what, false, nullptr) == cudaErrorInvalidValue &&
             CombineLowLatency(of, what, step.x, out, false, nullptr) == cudaErrorInvalidValue)) &&
           (most <= kExchangeTokensMax ||
            (DispatchNormal(of, what, nullptr) == cudaErrorInvalidValue &&
             CombineNormal(of, what, step.x, out, nullptr) == cudaErrorInvalidValue));
  };

  for (const int tokens : {-1, 9}) {
    ExchangeStep other = step;
    other.tokens = tokens;
    EXPECT_TRUE(refused(rank, other)) << tokens;
  }
  for (const int cover : {0, most + 1}) {
    ExchangeStep other = step;
    other.cover = cover;
    other.tokens = 0;
    EXPECT_TRUE(refused(rank, other)) << cover;
  }
  ExchangeStep unaligned = step;
  unaligned.x = step.x + 1;
  EXPECT_TRUE(refused(rank, unaligned));
  ExchangeStep unknown = step;
  unknown.format = ExchangeFormat::kInt8;  // not of this group
  EXPECT_TRUE(refused(rank, unknown));
  ExchangeStep fp8_answers = step;
  fp8_answers.answers = AnswerFormat::kFp8;
  EXPECT_TRUE(refused(rank, fp8_answers) || most > kExchangeTokensMax);
  ExchangeRank patient = rank;
  patient.timeout_ns = kExchangeTimeoutMax + 1;
  EXPECT_TRUE(refused(patient, step));
  ExchangeRank alone = rank;
  alone.heaps[1] = nullptr;
  EXPECT_TRUE(refused(alone, step));
  // The other kernels take the fifth; the last has more choices than either takes.
  for (const ExchangeShape& shape :
       {ShapeOf(9, most, 2048, 4, 8, ExchangeFormat::kFp8),
        ShapeOf(2, 8193, 2048, 4, 8, ExchangeFormat::kFp8),
        ShapeOf(2, most, 2000, 4, 8, ExchangeFormat::kFp8),
        ShapeOf(2, most, 2048, 17, 8, ExchangeFormat::kFp8),
        ShapeOf(2, most == 16 ? 257 : 16, 2048, 4, 8, ExchangeFormat::kFp8),
        most == 16 ? ShapeOf(8, 256, 2048, 16, 8, ExchangeFormat::kFp8)
                   : ShapeOf(8, 8192, 2048, 16, 8, ExchangeFormat::kFp8)}) {
    ExchangeRank other = rank;
    other.shape = shape;
    EXPECT_TRUE(refused(other, step)) << shape.ranks << " " << shape.hidden;
  }
}

INSTANTIATE_TEST_SUITE_P(TokensMax, ExchangeArgumentsTest, ::testing::Values(16, 300));

TEST(ExchangeLayoutTest, NothingOverlapsAndAllIsAligned) {
  for (int f = 0; f < kExchangeFormats; ++f) {
    const auto format = static_cast<ExchangeFormat>(f);
    for (const int hidden : {128, 640, 2048, 7168}) {
      const ExchangeShape shape = ShapeOf(3, 5, hidden, 7, 4, format);
      const ExchangeLayout layout = LayoutOf(shape);
      const int row_bytes = RowBytesOf(format, hidden);
      const int last = kExchangeBuffers - 1;
      EXPECT_LE(layout.Header(shape, last, 2) + 16, layout.table);
      EXPECT_LE(layout.Packet(shape, last, 2, 4, layout.packets - 1) + 16, layout.answers);
      EXPECT_LE(layout.Answer(shape, last, 2, 4) + hidden * 2, layout.rows);
      EXPECT_EQ(layout.Row(shape, last, 2, 4) + layout.row_stride, layout.bytes);
      ExchangeShape per_expert = shape;
      per_expert.unit = ExchangeUnit::kPerExpert;
      EXPECT_EQ(LayoutOf(per_expert).Answer(per_expert, last, 4, Choice{6}) + layout.answer_stride,
                LayoutOf(per_expert).rows);
      EXPECT_EQ(layout.packets, 4);
      EXPECT_EQ(row_bytes % 16, 0);
      EXPECT_GE(layout.row_stride, row_bytes);
      for (const std::int64_t at : {layout.table, layout.rows, layout.answers, layout.bytes,
                                    layout.Row(shape, 1, 1, 3), layout.Answer(shape, 2, 0, 1)}) {
        EXPECT_EQ(at % 128, 0);
      }
      const ExchangeShape many = ShapeOf(3, 300, hidden, 7, 4, format);
      const ExchangeLayout of_many = LayoutOf(many);
      EXPECT_EQ(of_many.Header(many, 0, 2) + kHeaderBytes, of_many.table);
      EXPECT_LE(of_many.Packet(many, 0, 2, 299, 3) + 16, of_many.answers);
      EXPECT_EQ(of_many.Answer(many, 0, 2, 299) + of_many.answer_stride, of_many.rows);
      EXPECT_EQ(of_many.Row(many, 0, 2, 299) + of_many.row_stride, of_many.bytes);
    }
  }
}

TEST(ExchangeLayoutTest, HeapsOfRanksWithoutExpertsHoldNoRows) {
  const ExchangeShape shape = OfExperts(2, ShapeOf(4, 8192, 7168, 8, 64, ExchangeFormat::kBf16));
  const ExchangeLayout layout = LayoutOf(shape);
  for (const int rank : {0, 1}) EXPECT_EQ(HeapBytes(shape, layout, rank), layout.bytes);
  for (const int rank : {2, 3}) {
    EXPECT_EQ(HeapBytes(shape, layout, rank), layout.bytes - std::int64_t{4} * 8192 * 7168 * 2);
  }
}

TEST(ExchangeLayoutTest, RowsHaveTheBytesOfTheirFormat) {
  EXPECT_EQ(RowBytesOf(ExchangeFormat::kBf16, 7168), 14336);
  EXPECT_EQ(RowBytesOf(ExchangeFormat::kFp8, 7168), 7392);
  EXPECT_EQ(RowBytesOf(ExchangeFormat::kFp8Pow2, 640), 640 + 32);
  EXPECT_EQ(RowBytesOf(ExchangeFormat::kInt8, 7168), 7184);
  EXPECT_EQ(RowBytesOf(ExchangeFormat::kNvfp4, 7168), 4032);
  EXPECT_EQ(RowBytesOf(ExchangeFormat::kNvfp4, 128), 64 + 16);
}

}  // namespace
}  // namespace switchyard::cuda
