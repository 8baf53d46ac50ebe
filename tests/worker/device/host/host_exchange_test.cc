// Groups of ranks in one process, each with a device of its own; ranks in processes of their own
// are in host_exchange_process_test.
#include "worker/device/host/host_exchange.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/exchange_ranks.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/host/shared_memory.h"

namespace switchyard {
namespace {

using testing::ExchangeOracle;
using testing::ExchangeRankRun;
using testing::ExchangeTokens;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::RandomTokens;
using ::testing::UnorderedElementsAre;

constexpr Duration kPatient = std::chrono::seconds(60);

ExchangeSpec SpecOf(std::int32_t ranks, std::int32_t expert_ranks) {
  return {.shape = {.hidden = 48, .intermediate = 32, .experts = 12, .top_k = 3},
          .ranks = ranks,
          .expert_ranks = expert_ranks,
          .tokens_max = 6};
}

std::unique_ptr<CpuBackend> MakeCpu() { return *CpuBackend::Create({.kernel_family = "scalar"}); }

// All ranks of a group, joined.
class Group {
 public:
  explicit Group(const ExchangeSpec& spec, Duration patience = kPatient) : spec_(spec) {
    std::vector<std::string> keys;
    for (std::int32_t rank = 0; rank < spec.ranks; ++rank) {
      devices_.push_back(MakeCpu());
      ranks_.push_back(std::make_unique<ExchangeRankRun>(devices_.back().get(), spec, rank));
      keys.push_back(ranks_.back()->exchange().key());
    }
    for (const auto& rank : ranks_) SY_EXPECT_OK(rank->exchange().Join(keys, patience));
  }
  [[nodiscard]] ExchangeRankRun& rank(std::size_t number) { return *ranks_[number]; }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }

  // One step of all ranks; their answers.
  std::vector<std::vector<Bf16>> Step(const std::vector<ExchangeTokens>& tokens) {
    std::int32_t cover = 0;
    for (const ExchangeTokens& of : tokens) cover = std::max(cover, of.count);
    for (std::size_t r = 0; r < size(); ++r) SY_EXPECT_OK(rank(r).Begin(tokens[r], cover));
    std::vector<std::vector<Bf16>> answers;
    for (std::size_t r = 0; r < size(); ++r) {
      EXPECT_TRUE(rank(r).Finish(kPatient));
      SY_EXPECT_OK(rank(r).exchange().Fault());
      answers.push_back(rank(r).y());
    }
    return answers;
  }

 private:
  const ExchangeSpec spec_;
  std::vector<std::unique_ptr<CpuBackend>> devices_;
  std::vector<std::unique_ptr<ExchangeRankRun>> ranks_;
};

std::vector<ExchangeTokens> TokensOfAll(const ExchangeSpec& spec,
                                        const std::vector<std::int32_t>& counts, Rng& rng) {
  std::vector<ExchangeTokens> tokens;
  for (const std::int32_t count : counts) tokens.push_back(RandomTokens(spec, count, rng));
  return tokens;
}

std::vector<std::int32_t> RandomCounts(const ExchangeSpec& spec, Rng& rng) {
  std::vector<std::int32_t> counts;
  for (std::int32_t r = 0; r < spec.ranks; ++r) {
    counts.push_back(
        static_cast<std::int32_t>(rng.Below(static_cast<std::uint64_t>(spec.tokens_max) + 1)));
  }
  return counts;
}

// Files and mappings of shared memory that this process has.
int SharedMemoryHere() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += absl::StrContains(line, "switchyard-shared") ? 1 : 0;
  }
  return count;
}

// Every format, both units, and groups with and without ranks that only send.
struct GroupCase {
  std::int32_t ranks;
  std::int32_t expert_ranks;
  CombineUnit unit;
  WireFormat wire;
};

class HostExchangeTest : public ::testing::TestWithParam<GroupCase> {
 protected:
  [[nodiscard]] static ExchangeSpec Spec() {
    ExchangeSpec spec = SpecOf(GetParam().ranks, GetParam().expert_ranks);
    spec.unit = GetParam().unit;
    spec.wire = GetParam().wire;
    return spec;
  }
};

std::vector<GroupCase> GroupCases() {
  std::vector<GroupCase> cases;
  const std::vector<std::pair<std::int32_t, std::int32_t>> sizes = {
      {1, 1}, {2, 2}, {3, 2}, {4, 4}, {4, 1}};
  for (const auto& [ranks, expert_ranks] : sizes) {
    for (const CombineUnit unit : {CombineUnit::kPerExpert, CombineUnit::kPerWorker}) {
      for (const NamedWireFormat& row : WireFormats()) {
        cases.push_back({ranks, expert_ranks, unit, row.format});
      }
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<GroupCase>& info) {
  return absl::StrCat(WireFormatName(info.param.wire), "_", info.param.ranks, "_",
                      info.param.expert_ranks,
                      info.param.unit == CombineUnit::kPerExpert ? "_expert" : "_worker");
}

TEST_P(HostExchangeTest, EveryTokenGetsTheDefinedBits) {
  const ExchangeSpec spec = Spec();
  SeededRng rng(11);
  const auto device = MakeCpu();
  ExchangeOracle oracle(device.get(), spec);
  Group group(spec);

  for (int number = 0; number < 7; ++number) {
    // No tokens on all ranks, then on some.
    std::vector<std::int32_t> counts = RandomCounts(spec, rng);
    if (number == 1) counts.assign(counts.size(), 0);
    if (number == 3) counts[0] = 0;
    const auto tokens = TokensOfAll(spec, counts, rng);

    const auto answers = group.Step(tokens);

    for (std::size_t r = 0; r < tokens.size(); ++r) {
      EXPECT_EQ(answers[r], oracle.Answer(tokens[r])) << "step " << number << ", rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, HostExchangeTest, ::testing::ValuesIn(GroupCases()), NameOf);

// Layers of a model may have formats of their own, an unquantized draft beside NVFP4.
TEST(HostExchangeFormatsTest, StepsOfDifferentFormatsFollowEachOther) {
  const ExchangeSpec spec = SpecOf(3, 2);  // BF16, the largest
  SeededRng rng(13);
  const auto device = MakeCpu();
  ExchangeOracle oracle(device.get(), spec);
  Group group(spec);
  for (int number = 0; number < 12; ++number) {
    const auto row = static_cast<std::size_t>(number) % WireFormats().size();
    const WireFormat format = WireFormats()[row].format;
    const CodecSpec of{.format = format, .global_scale = format == kNvfp4Format ? 13.5F : 1.0F};
    const auto codec = [&] { return format == kBf16Format ? nullptr : *device->MakeCodec(of); };
    const std::unique_ptr<Codec> rows = codec();
    const std::unique_ptr<Codec> sums =
        number % 2 == 0 ? nullptr : *device->MakeCodec({.format = kFp8Format});
    for (std::size_t r = 0; r < group.size(); ++r) {
      group.rank(r).codecs = {.rows = rows.get(), .sums = sums.get()};
    }
    oracle.SetCodecs(codec(),
                     sums == nullptr ? nullptr : *device->MakeCodec({.format = kFp8Format}));
    const auto tokens = TokensOfAll(spec, {4, 0, 6}, rng);

    const auto answers = group.Step(tokens);

    for (std::size_t r = 0; r < tokens.size(); ++r) {
      EXPECT_EQ(answers[r], oracle.Answer(tokens[r])) << "step " << number << ", rank " << r;
    }
  }
}

TEST(HostExchangeFormatsTest, RowsThatTheGroupHasNoRoomForAreRefused) {
  ExchangeSpec spec = SpecOf(2, 2);
  spec.wire = kNvfp4Format;
  Group group(spec);
  SeededRng rng(13);
  const auto tokens = TokensOfAll(spec, {4, 4}, rng);
  group.rank(0).codecs = {};

  const absl::Status begun = group.rank(0).Begin(tokens[0], 4);

  EXPECT_THAT(begun, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  EXPECT_THAT(std::string(begun.message()), HasSubstr("larger than those of nvfp4"));
}

TEST(HostExchangeFormatsTest, RanksThatMeanDifferentFormatsSaySo) {
  const ExchangeSpec spec = SpecOf(2, 2);
  const auto device = MakeCpu();
  const auto fp8 = *device->MakeCodec({.format = kFp8Format});
  const auto nvfp4 = *device->MakeCodec({.format = kNvfp4Format, .global_scale = 2.0F});
  const auto rescaled = *device->MakeCodec({.format = kNvfp4Format, .global_scale = 3.0F});
  const std::pair<StepCodecs, StepCodecs> pairs[] = {
      {{.rows = fp8.get()}, {}},
      {{.rows = nvfp4.get()}, {.rows = rescaled.get()}},
      {{.rows = fp8.get()}, {.rows = fp8.get(), .sums = fp8.get()}}};
  for (const auto& [one, other] : pairs) {
    Group group(spec);
    SeededRng rng(13);
    const auto tokens = TokensOfAll(spec, {4, 4}, rng);
    group.rank(0).codecs = one;
    group.rank(1).codecs = other;
    for (std::size_t r = 0; r < 2; ++r) SY_ASSERT_OK(group.rank(r).Begin(tokens[r], 4));
    for (std::size_t r = 0; r < 2; ++r) {
      ASSERT_TRUE(group.rank(r).Finish(kPatient));
      EXPECT_THAT(group.rank(r).exchange().Fault(),
                  FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
    }
  }
}

// The layer as its definition reads, in double precision.
TEST(HostExchangeLayerTest, AGroupComputesTheLayer) {
  for (const CombineUnit unit : {CombineUnit::kPerExpert, CombineUnit::kPerWorker}) {
    ExchangeSpec spec = SpecOf(3, 2);
    spec.unit = unit;
    SeededRng rng(5);
    Group group(spec);
    auto tokens = TokensOfAll(spec, {6, 2, 5}, rng);
    std::vector<testing::RandomExpert> raw;
    std::vector<ExpertWeightsView> experts;
    for (std::int32_t e = 0; e < spec.shape.experts; ++e) {
      raw.emplace_back(spec.shape, static_cast<std::uint64_t>(e) + 1);
    }
    for (const auto& expert : raw) experts.push_back(expert.view());
    for (auto& of : tokens) {
      for (auto& id : of.ids) id = std::clamp(id, 0, spec.shape.experts - 1);
    }

    const auto answers = group.Step(tokens);

    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const std::vector<double> expected = testing::ReferenceMoeLayer(
          spec.shape, experts,
          {.x = tokens[r].x, .ids = tokens[r].ids, .weights = tokens[r].weights});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(Bf16ToFloat(answers[r][i])), expected[i], 0.05);
      }
    }
  }
}

TEST(HostExchangeLayerTest, AnswersPerExpertDoNotDependOnWhereExpertsAre) {
  std::vector<std::vector<std::vector<Bf16>>> answers;
  for (const std::int32_t expert_ranks : {1, 2, 4}) {
    ExchangeSpec spec = SpecOf(4, expert_ranks);
    spec.unit = CombineUnit::kPerExpert;
    spec.wire = kFp8Format;
    SeededRng rng(7);
    Group group(spec);
    answers.push_back(group.Step(TokensOfAll(spec, {6, 0, 3, 1}, rng)));
  }

  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
}

TEST(HostExchangeLayerTest, ANanStaysInItsToken) {
  ExchangeSpec spec = SpecOf(2, 2);
  spec.wire = kFp8Format;
  SeededRng rng(9);
  Group group(spec);
  auto tokens = TokensOfAll(spec, {4, 3}, rng);
  for (auto& id : tokens[0].ids) id = std::clamp(id, 0, spec.shape.experts - 1);
  const auto before = group.Step(tokens);
  const auto hidden = static_cast<std::size_t>(spec.shape.hidden);
  tokens[0].x[hidden + 5] = 0x7fc0;  // of token 1

  const auto after = group.Step(tokens);

  EXPECT_EQ(after[1], before[1]);
  for (std::size_t i = 0; i < after[0].size(); ++i) {
    if (i / hidden == 1) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(after[0][i]))) << i;
    } else {
      EXPECT_EQ(after[0][i], before[0][i]) << i;
    }
  }
}

// Experts that are not in order on their ranks: the bits of ids that are places.
TEST(HostExchangeLayerTest, ExpertsMayBeAnywhere) {
  for (const CombineUnit unit : {CombineUnit::kPerExpert, CombineUnit::kPerWorker}) {
    ExchangeSpec spec = SpecOf(4, 2);
    spec.unit = unit;
    SeededRng rng(31);
    auto tokens = TokensOfAll(spec, {6, 0, 5, 3}, rng);
    std::vector<std::int32_t> places;
    for (std::int32_t e = 0; e < spec.shape.experts; ++e) {
      places.push_back((e * 5 + 3) % spec.shape.experts);
    }
    Group group(spec);
    auto by_place = tokens;
    for (auto& of : by_place) {
      for (auto& id : of.ids) {
        if (id >= 0 && id < spec.shape.experts) id = places[static_cast<std::size_t>(id)];
      }
    }

    const auto expected = group.Step(by_place);
    for (std::size_t r = 0; r < group.size(); ++r) group.rank(r).places = places.data();
    const auto answers = group.Step(tokens);

    EXPECT_EQ(answers, expected);
  }
}

// R52
TEST(ExchangeSpecTest, ExpectedRowsPerExpertHasItsGoldenValues) {
  const auto expected = [](std::int32_t cover, std::int32_t ranks, std::int32_t expert_ranks) {
    ExchangeSpec spec;
    spec.shape = {.hidden = 7168, .intermediate = 2048, .experts = 256, .top_k = 8};
    spec.ranks = ranks;
    spec.expert_ranks = expert_ranks;
    return ExpectedRowsPerExpert(spec, cover);
  };
  EXPECT_EQ(expected(128, 8, 8), 33);
  EXPECT_EQ(expected(0, 8, 8), 1);
  EXPECT_EQ(expected(1, 1, 1), 1);
  EXPECT_EQ(expected(32, 1, 1), 2);
  EXPECT_EQ(expected(128, 4, 2), 9) << "two sources without experts";
}

// R52: what an expert is expected to get may be wrong by far.
TEST(HostExchangeLayerTest, AllTokensMayGoToTheSameExperts) {
  ExchangeSpec spec = SpecOf(4, 4);
  spec.unit = CombineUnit::kPerExpert;
  SeededRng rng(21);
  const auto device = MakeCpu();
  ExchangeOracle oracle(device.get(), spec);
  Group group(spec);
  auto tokens = TokensOfAll(spec, {6, 6, 6, 6}, rng);
  for (auto& of : tokens) {
    for (std::size_t i = 0; i < of.ids.size(); ++i) {
      of.ids[i] = static_cast<std::int32_t>(i) % spec.shape.top_k;
    }
  }

  const auto answers = group.Step(tokens);

  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(answers[r], oracle.Answer(tokens[r])) << r;
}

// More pairs than one pass takes.
TEST(HostExchangeLayerTest, ManyTokensGoInSeveralPasses) {
  for (const CombineUnit unit : {CombineUnit::kPerExpert, CombineUnit::kPerWorker}) {
    ExchangeSpec spec = SpecOf(2, 1);
    spec.tokens_max = 500;
    spec.unit = unit;
    ASSERT_LT(ExchangeRows::PairsOfPass(spec), 2 * 500 * 3);
    SeededRng rng(13);
    const auto device = MakeCpu();
    ExchangeOracle oracle(device.get(), spec);
    Group group(spec);
    auto tokens = TokensOfAll(spec, {500, 499}, rng);
    for (auto& of : tokens) {
      for (auto& id : of.ids) id = std::clamp(id, 0, spec.shape.experts - 1);
    }

    const auto answers = group.Step(tokens);

    for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(answers[r], oracle.Answer(tokens[r])) << r;
  }
}

// Every rank goes at its own pace, with up to eight steps on its stream.
TEST(HostExchangeLayerTest, ThousandsOfStepsAtUnevenPaceAreAllResults) {
  constexpr int kSteps = 1200;
  const ExchangeSpec spec = SpecOf(3, 2);
  Group group(spec);
  const auto tokens_of = [&spec](std::size_t rank, int number) {
    SeededRng rng(static_cast<std::uint64_t>(number) * 8 + rank);
    return RandomTokens(spec, static_cast<std::int32_t>(rng.Below(7)), rng);
  };
  std::vector<std::vector<std::vector<Bf16>>> answers(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r) {
    threads.emplace_back([&, r] {
      SeededRng pace(100 + r);
      for (int number = 0; number < kSteps; ++number) {
        // Now and then a rank is far behind.
        const std::uint64_t yields = pace.Below(pace.Below(50) == 0 ? 2000 : 20);
        for (std::uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
        const ExchangeTokens tokens = tokens_of(r, number);
        SY_EXPECT_OK(group.rank(r).Begin(tokens, spec.tokens_max));
        EXPECT_TRUE(group.rank(r).Finish(kPatient));
        answers[r].push_back(group.rank(r).y());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const auto device = MakeCpu();
  ExchangeOracle oracle(device.get(), spec);
  for (std::size_t r = 0; r < group.size(); ++r) {
    SY_EXPECT_OK(group.rank(r).exchange().Fault());
    for (int number = 0; number < kSteps; ++number) {
      ASSERT_EQ(answers[r][static_cast<std::size_t>(number)], oracle.Answer(tokens_of(r, number)))
          << "rank " << r << ", step " << number;
    }
  }
}

// Steps that are queued one after the other, without a wait of the caller between.
TEST(HostExchangeLayerTest, QueuedStepsRunInOrder) {
  const ExchangeSpec spec = SpecOf(2, 2);
  constexpr std::size_t kSteps = 10;
  Group group(spec);
  SeededRng rng(17);
  const auto device = MakeCpu();
  ExchangeOracle oracle(device.get(), spec);
  const auto row = static_cast<std::size_t>(spec.shape.hidden);
  std::vector<ExchangeTokens> tokens;
  std::vector<std::unique_ptr<Buffer>> y;
  for (std::size_t n = 0; n < kSteps; ++n) {
    for (std::size_t r = 0; r < 2; ++r) {
      tokens.push_back(RandomTokens(spec, 4, rng));
      y.push_back(*device->Allocate(4 * row * sizeof(Bf16), MemoryKind::kHost));
    }
  }

  for (std::size_t n = 0; n < kSteps; ++n) {
    for (std::size_t r = 0; r < 2; ++r) {
      ExchangeStep step = group.rank(r).StepOf(tokens[2 * n + r], 4);
      step.x = tokens[2 * n + r].x.data();
      step.y = reinterpret_cast<Bf16*>(y[2 * n + r]->data());
      SY_ASSERT_OK(group.rank(r).exchange().Step(group.rank(r).stream(), step));
    }
  }

  for (std::size_t r = 0; r < 2; ++r) {
    const auto event = group.rank(r).stream()->MakeEvent();
    SY_ASSERT_OK(group.rank(r).stream()->Record(event.get()));
    ASSERT_TRUE(event->Wait(kPatient));
    for (std::size_t n = 0; n < kSteps; ++n) {
      const auto* const first = reinterpret_cast<const Bf16*>(y[2 * n + r]->data());
      EXPECT_EQ(std::vector<Bf16>(first, first + 4 * row), oracle.Answer(tokens[2 * n + r]));
    }
  }
}

TEST(HostExchangeFaultTest, ARankThatDoesNotComeIsNamedByAllOthers) {
  constexpr Duration kPatience = std::chrono::milliseconds(200);
  const ExchangeSpec spec = SpecOf(3, 3);
  Group group(spec, kPatience);
  SeededRng rng(19);
  group.Step(TokensOfAll(spec, {1, 2, 3}, rng));
  const auto tokens = TokensOfAll(spec, {4, 4, 4}, rng);
  const auto begin = std::chrono::steady_clock::now();

  for (const std::size_t r : {0U, 2U}) SY_ASSERT_OK(group.rank(r).Begin(tokens[r], 4));

  for (const std::size_t r : {0U, 2U}) {
    ASSERT_TRUE(group.rank(r).Finish(kPatient));
    const absl::Status fault = group.rank(r).exchange().Fault();
    EXPECT_THAT(fault, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
    EXPECT_THAT(std::string(fault.message()), HasSubstr("rank 1, step 1 of the group"));
    EXPECT_THAT(MetadataOf(fault),
                UnorderedElementsAre(std::pair("rank", "1"), std::pair("step", "1")));
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, kPatience);
  // The one that comes late finds that it is not waited for, and the others' later steps end at
  // once too.
  const auto later = std::chrono::steady_clock::now();
  for (std::size_t r = 0; r < 3; ++r) {
    SY_ASSERT_OK(group.rank(r).Begin(tokens[r], 4));
    ASSERT_TRUE(group.rank(r).Finish(kPatient));
    EXPECT_THAT(MetadataOf(group.rank(r).exchange().Fault()),
                UnorderedElementsAre(std::pair("rank", "1"), std::pair("step", "1")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - later, kPatience);
}

// A rank that dies between its header and its answers: its heap is made by hand.
TEST(HostExchangeFaultTest, ARankThatDoesNotAnswerIsNamed) {
  constexpr Duration kPatience = std::chrono::milliseconds(100);
  const ExchangeSpec spec = SpecOf(2, 2);
  SeededRng rng(19);
  auto tokens = TokensOfAll(spec, {4, 0}, rng);
  std::fill(tokens[0].ids.begin(), tokens[0].ids.end(), 11);  // rank 1's
  const auto device = MakeCpu();
  ExchangeRankRun lone(device.get(), spec, 0);
  const HeapLayout layout(spec);
  SY_ASSERT_OK_AND_ASSIGN(SharedBuffer silent, AllocateHostShared(layout.bytes(1)));
  const ExchangeHeap silent_heap(&layout, silent.buffer->data());
  silent_heap.group().facts = FactsOf(spec);
  silent_heap.group().rank = 1;
  const std::vector<std::string> keys{lone.exchange().key(), silent.key};
  SY_ASSERT_OK(lone.exchange().Join(keys, kPatience));
  SY_ASSERT_OK_AND_ASSIGN(const auto heap, OpenHostShared(keys[0], layout.bytes(0)));
  SourceHeader& header = ExchangeHeap(&layout, heap->data()).header(1, 1);
  header.cover = 4;
  header.formats = WireFormatCode(kBf16Format) | WireFormatCode(kBf16Format) << 8;
  header.global_scale = 1;
  header.sent.store(1, std::memory_order_release);

  SY_ASSERT_OK(lone.Begin(tokens[0], 4));

  ASSERT_TRUE(lone.Finish(kPatient));
  EXPECT_THAT(lone.exchange().Fault(),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_NE(silent_heap.group().fault.load(), 0U) << "the other is told";
  // What it was sent is there.
  EXPECT_EQ(silent_heap.header(1, 0).tokens, 4);
  EXPECT_EQ(std::memcmp(silent_heap.row(1, 0, 3), &tokens[0].x[std::size_t{3} * 48], 96), 0);
}

TEST(HostExchangeFaultTest, RanksThatMeanAnotherStepAllFailWithoutAWait) {
  const ExchangeSpec spec = SpecOf(3, 2);
  Group group(spec);
  SeededRng rng(23);
  const auto tokens = TokensOfAll(spec, {1, 2, 3}, rng);

  for (std::size_t r = 0; r < 3; ++r) {
    SY_ASSERT_OK(group.rank(r).Begin(tokens[r], r == 1 ? 5 : 4));
  }

  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_TRUE(group.rank(r).Finish(kPatient / 10));
    EXPECT_THAT(group.rank(r).exchange().Fault(),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig))
        << r;
    EXPECT_EQ(MetadataOf(group.rank(r).exchange().Fault()).at("step"), "0");
  }
}

TEST(HostExchangeFaultTest, RanksThatMeanAnotherLayerSaySo) {
  const ExchangeSpec spec = SpecOf(2, 2);
  Group group(spec);
  SeededRng rng(23);
  const auto tokens = TokensOfAll(spec, {3, 3}, rng);

  for (std::size_t r = 0; r < 2; ++r) {
    group.rank(r).layer = LayerId{static_cast<std::int32_t>(r)};
    SY_ASSERT_OK(group.rank(r).Begin(tokens[r], 3));
  }

  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(group.rank(r).Finish(kPatient / 10));
    EXPECT_THAT(group.rank(r).exchange().Fault(),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  }
}

TEST(HostExchangeFaultTest, ARankOfAnotherGroupIsRefusedByAll) {
  const ExchangeSpec spec = SpecOf(2, 2);
  const auto one = MakeCpu();
  const auto other = MakeCpu();
  std::vector<ExchangeSpec> others(6, spec);
  others[0].tokens_max = 7;
  others[1].wire = kFp8Format;
  others[2].unit = CombineUnit::kPerExpert;
  others[3].expert_ranks = 1;
  others[4].shape.hidden = 64;
  others[5].shape.top_k = 2;
  for (const ExchangeSpec& unlike : others) {
    SY_ASSERT_OK_AND_ASSIGN(const auto a, one->MakeExchange(spec, 0));
    SY_ASSERT_OK_AND_ASSIGN(const auto b, other->MakeExchange(unlike, 1));
    const std::vector<std::string> keys{a->key(), b->key()};

    for (Exchange* rank : {a.get(), b.get()}) {
      const absl::Status joined = rank->Join(keys, kPatient);
      EXPECT_THAT(joined, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
      EXPECT_EQ(MetadataOf(joined).count("rank"), 1U);
    }
  }
}

TEST(HostExchangeFaultTest, KeysThatDoNotFitAreRefusedWithTheirRank) {
  const ExchangeSpec spec = SpecOf(2, 2);
  const auto device = MakeCpu();
  SY_ASSERT_OK_AND_ASSIGN(const auto a, device->MakeExchange(spec, 0));
  SY_ASSERT_OK_AND_ASSIGN(const auto b, device->MakeExchange(spec, 1));
  SY_ASSERT_OK_AND_ASSIGN(const auto also_a, device->MakeExchange(spec, 0));
  const auto bad_request = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);

  EXPECT_THAT(a->Join(std::vector<std::string>{a->key()}, kPatient), bad_request);
  for (const std::string& wrong : {std::string("none"), also_a->key()}) {
    const absl::Status joined = a->Join(std::vector<std::string>{a->key(), wrong}, kPatient);
    EXPECT_THAT(joined, bad_request);
    EXPECT_THAT(std::string(joined.message()), HasSubstr("rank 1"));
  }
  const std::vector<std::string> keys{a->key(), b->key()};
  SY_EXPECT_OK(a->Join(keys, kPatient));
  EXPECT_THAT(a->Join(keys, kPatient), bad_request) << "a second one";
}

TEST(HostExchangeFaultTest, GroupsThatDoNotFitAreRefused) {
  const auto device = MakeCpu();
  const auto refused = [&device](const std::function<void(ExchangeSpec&)>& change,
                                 std::int32_t rank = 0) {
    ExchangeSpec spec = SpecOf(2, 2);
    change(spec);
    EXPECT_THAT(device->MakeExchange(spec, rank).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  };
  refused([](ExchangeSpec&) {}, 2);
  refused([](ExchangeSpec&) {}, -1);
  refused([](ExchangeSpec& spec) { spec.ranks = 65; });
  refused([](ExchangeSpec& spec) { spec.expert_ranks = 0; });
  refused([](ExchangeSpec& spec) { spec.expert_ranks = 3; });
  refused([](ExchangeSpec& spec) { spec.shape.experts = 7; });
  refused([](ExchangeSpec& spec) { spec.shape.hidden = 0; });
  refused([](ExchangeSpec& spec) { spec.shape.top_k = 65; });
  refused([](ExchangeSpec& spec) { spec.tokens_max = 0; });
  ExchangeSpec odd = SpecOf(2, 2);
  odd.wire.group = 3;
  ExchangeSpec by_messages = SpecOf(2, 2);
  by_messages.by_messages = true;
  for (const ExchangeSpec& spec : {odd, by_messages}) {
    EXPECT_THAT(device->MakeExchange(spec, 0).status(),
                FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  }
}

// Nothing of a step that is refused reaches the others, who get the next one.
TEST(HostExchangeFaultTest, AStepThatDoesNotFitIsRefusedAndNotCounted) {
  const ExchangeSpec spec = SpecOf(2, 1);
  Group group(spec);
  SeededRng rng(29);
  const auto tokens = TokensOfAll(spec, {3, 2}, rng);
  const auto refused = [&group](std::size_t rank, const ExchangeStep& step, Reason reason) {
    EXPECT_THAT(group.rank(rank).exchange().Step(group.rank(rank).stream(), step),
                FailsWith(absl::StatusCode::kInvalidArgument, reason));
  };
  ExchangeStep step = group.rank(0).StepOf(tokens[0], 2);
  refused(0, step, Reason::kBadShape);  // three tokens
  step.cover = 7;
  refused(0, step, Reason::kBadShape);
  step.cover = 3;
  step.tokens = -1;
  refused(0, step, Reason::kBadShape);
  step.tokens = 3;
  step.x = step.x + 1;
  refused(0, step, Reason::kBadRequest);
  step.x = nullptr;
  refused(0, step, Reason::kBadRequest);
  step = group.rank(0).StepOf(tokens[0], 3);
  const ExpertTable* const table = step.experts;
  step.experts = nullptr;
  refused(0, step, Reason::kBadRequest);
  ExchangeStep without = group.rank(1).StepOf(tokens[1], 3);
  without.experts = table;
  refused(1, without, Reason::kBadRequest);

  const auto answers = group.Step(tokens);
  const auto device = MakeCpu();
  ExchangeOracle oracle(device.get(), spec);
  EXPECT_EQ(answers[0], oracle.Answer(tokens[0]));

  const auto elsewhere = *device->MakeStream({});
  EXPECT_THAT(group.rank(0).exchange().Step(elsewhere.get(), group.rank(0).StepOf(tokens[0], 3)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

// A device whose group waits still serves other streams, of every class; and the group goes on.
TEST(HostExchangeDeviceTest, OtherStreamsGoOnWhileAStepWaits) {
  const ExchangeSpec spec = SpecOf(2, 2);
  const auto device =
      *CpuBackend::Create({.kernel_family = "scalar", .inline_limits = {.weight_bytes = 0}});
  const auto second = MakeCpu();
  ExchangeRankRun first_rank(device.get(), spec, 0);
  ExchangeRankRun second_rank(second.get(), spec, 1);
  const std::vector<std::string> keys{first_rank.exchange().key(), second_rank.exchange().key()};
  SY_ASSERT_OK(first_rank.exchange().Join(keys, kPatient));
  SY_ASSERT_OK(second_rank.exchange().Join(keys, kPatient));
  SeededRng rng(31);
  const auto tokens = TokensOfAll(spec, {4, 5}, rng);
  const auto table = testing::ExpertsOf(device.get(), spec.shape, 0, spec.shape.experts);
  SY_ASSERT_OK(first_rank.Begin(tokens[0], 5));

  for (const WorkClass of : {WorkClass::kDecode, WorkClass::kPrefill, WorkClass::kLoad}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto stream, device->MakeStream({.work_class = of}));
    SY_ASSERT_OK_AND_ASSIGN(const auto workspace, device->MakeWorkspace(spec.shape, 16));
    const auto event = stream->MakeEvent();
    const std::int32_t slot = 3;
    std::vector<Bf16> out(48, 0x7fa5);
    ExpertInput input{.rows = reinterpret_cast<const std::byte*>(tokens[0].x.data()),
                      .count = 1,
                      .slots = &slot,
                      .out = out.data()};
    SY_ASSERT_OK(
        stream->Run({.experts = table.get(), .workspace = workspace.get(), .inputs = {&input, 1}}));
    SY_ASSERT_OK(stream->Record(event.get()));

    ASSERT_TRUE(event->Wait(kPatient / 10)) << static_cast<int>(of);
    EXPECT_NE(out[0], 0x7fa5);
    EXPECT_FALSE(first_rank.Finish({})) << "the step still waits";
  }

  SY_ASSERT_OK(second_rank.Begin(tokens[1], 5));
  EXPECT_TRUE(first_rank.Finish(kPatient));
  EXPECT_TRUE(second_rank.Finish(kPatient));
  SY_EXPECT_OK(first_rank.exchange().Fault());
  ExchangeOracle oracle(second.get(), spec);
  EXPECT_EQ(first_rank.y(), oracle.Answer(tokens[0]));
}

// One device may be all ranks of a group: a step that waits does not occupy its thread.
TEST(HostExchangeDeviceTest, RanksMayShareADevice) {
  const ExchangeSpec spec = SpecOf(3, 3);
  const auto device = MakeCpu();
  std::vector<std::unique_ptr<ExchangeRankRun>> ranks;
  std::vector<std::string> keys;
  for (std::int32_t r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<ExchangeRankRun>(device.get(), spec, r));
    keys.push_back(ranks.back()->exchange().key());
  }
  for (const auto& rank : ranks) SY_ASSERT_OK(rank->exchange().Join(keys, kPatient));
  SeededRng rng(37);
  ExchangeOracle oracle(device.get(), spec);
  for (int number = 0; number < 20; ++number) {
    const auto tokens = TokensOfAll(spec, RandomCounts(spec, rng), rng);

    for (std::size_t r = 0; r < 3; ++r) SY_ASSERT_OK(ranks[r]->Begin(tokens[r], 6));

    for (std::size_t r = 0; r < 3; ++r) {
      ASSERT_TRUE(ranks[r]->Finish(kPatient));
      EXPECT_EQ(ranks[r]->y(), oracle.Answer(tokens[r]));
    }
  }
}

TEST(HostExchangeDeviceTest, AGroupLeavesNoMemoryBehind) {
  ASSERT_EQ(SharedMemoryHere(), 0);
  {
    const ExchangeSpec spec = SpecOf(2, 2);
    Group group(spec);
    SeededRng rng(41);
    group.Step(TokensOfAll(spec, {1, 2}, rng));
    EXPECT_EQ(SharedMemoryHere(), 4) << "each rank maps both heaps";
  }
  EXPECT_EQ(SharedMemoryHere(), 0);
}

}  // namespace
}  // namespace switchyard
