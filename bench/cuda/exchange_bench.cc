// Dispatch and combine between the GPUs of one host, a rank on each, in one process: of few tokens,
// and of many (normal mode).
//
//   cuda_exchange_bench [--list] [--case NAME] [--ceilings] [--json PATH]
//
//   chain     [dispatch, a kernel that reads every landed row, combine] x 48 in a graph, with
//             dependent launch, divided by 48: what a layer pays beside its experts. The parts
//             alone likewise, where a rank may do one of them again and again
//   event     flush of the L2, barrier of the GPUs, event, operation, event in a graph; contains
//   the
//             empty pair of events and the skew of leaving the barrier
//
// Each figure is of the slowest rank, p50 of 200 replays (chains: 40), with 16 routings in turn, of
// many tokens with one.
// Tokens are random, and every answer of the first steps is compared bit by bit.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/exchange_rig.h"
#include "tests/cuda/exchange_group.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::ExchangeGroup;
using testing::RankTokens;
using testing::WireForms;

constexpr int kRoutings = 16;
constexpr int kChain = 48;                          // operations
constexpr std::uint64_t kPatience = 5'000'000'000;  // ns

struct Model {
  const char* name;
  int hidden;
  int top_k;
  int experts;
};
constexpr Model kModels[] = {{"DeepSeek-V3", 7168, 8, 256},
                             {"Qwen3-30B-A3B", 2048, 8, 128},
                             {"E512 k10 H2048", 2048, 10, 512},
                             {"E128 k8 H7168", 7168, 8, 128}};

// How rows go and answers come back.
struct Way {
  const char* name;
  ExchangeFormat format;
  ExchangeUnit unit;
  AnswerFormat answers = AnswerFormat::kBf16;
};
constexpr Way kWays[] = {
    {"FP8", ExchangeFormat::kFp8, ExchangeUnit::kPerWorker},
    {"BF16", ExchangeFormat::kBf16, ExchangeUnit::kPerWorker},
    {"INT8", ExchangeFormat::kInt8, ExchangeUnit::kPerWorker},
    {"NVFP4", ExchangeFormat::kNvfp4, ExchangeUnit::kPerWorker},
    {"FP8 both ways", ExchangeFormat::kFp8, ExchangeUnit::kPerWorker, AnswerFormat::kFp8},
    {"FP8 per expert", ExchangeFormat::kFp8, ExchangeUnit::kPerExpert}};

// Bytes that the busiest rank sends to others in dispatch and gets back in combine, by the first
// routing.
std::pair<double, double> WireBytes(const ExchangeShape& shape, const WireForms& forms,
                                    const std::vector<RankTokens>& tokens) {
  std::int64_t most = 0;
  std::int64_t most_answers = 0;
  for (int r = 0; r < shape.ranks; ++r) {
    std::int64_t rows = 0;
    std::int64_t answers = 0;
    const RankTokens& own = tokens[static_cast<std::size_t>(r)];
    for (int t = 0; t < own.tokens; ++t) {
      unsigned ranks = 0;
      for (int k = 0; k < shape.top_k; ++k) {
        const int id = own.ids[static_cast<std::size_t>(t * shape.top_k + k)];
        if (id < 0) continue;
        ranks |= 1U << (id / shape.experts_of_rank);
        if (shape.unit == ExchangeUnit::kPerExpert) answers += id / shape.experts_of_rank != r;
      }
      rows += __builtin_popcount(ranks & ~(1U << r));
    }
    if (shape.unit == ExchangeUnit::kPerWorker) answers = rows;
    most = std::max(most, rows);
    most_answers = std::max(most_answers, answers);
  }
  const auto answer =
      forms.answers == AnswerFormat::kFp8 ? ExchangeFormat::kFp8 : ExchangeFormat::kBf16;
  return {static_cast<double>(most) * RowBytesOf(forms.format, shape.hidden),
          static_cast<double>(most_answers) * RowBytesOf(answer, shape.hidden)};
}

bool Measure(const Options& options, const std::string& name, const ExchangeShape& shape,
             const WireForms& forms, int tokens) {
  const bool normal = IsNormal(shape);
  const int routings = normal ? 1 : kRoutings;
  const int chain_length = normal ? 4 : kChain;
  Watchdog(normal ? 90 : 30);
  std::mt19937_64 random(17);
  ExchangeGroup group(shape, shape.ranks, kPatience);
  group.SetForms(forms);
  std::vector<RankTokens> first;
  for (int r = 0; r < shape.ranks; ++r) {
    first.push_back(testing::RandomTokens(shape, tokens, 0.0, random));
    group.SetTokens(r, first.back(), tokens);
    for (int i = 0; i < routings; ++i) {
      group.AddRouting(r,
                       i == 0 ? first.back() : testing::RandomTokens(shape, tokens, 0.0, random));
    }
  }
  int wrong = 0;
  for (int step = 0; step < 4 && wrong == 0; ++step) {
    for (int r = 0; r < shape.ranks; ++r) group.Dispatch(r);
    for (int r = 0; r < shape.ranks; ++r) group.Experts(r);
    for (int r = 0; r < shape.ranks; ++r) group.Combine(r);
    group.Synchronize();
    wrong = WrongValues(group, first);
  }
  GroupRig rig(&group);
  const auto route = [&group, routings](int r, int i) { group.Route(r, i % routings); };
  const Figure all = rig.Chain(chain_length, [&](int r, int i) {
    route(r, i);
    group.Dispatch(r, true);
    group.Touch(r, true);
    group.Combine(r, true);
  });
  // With one buffer, a step's dispatch comes after the combine of the step before.
  const Figure dispatch =
      normal ? Figure()
             : rig.Chain(kChain, [&](int r, int i) { route(r, i), group.Dispatch(r, true); });
  const auto list_first = [&] {  // a combine alone takes the lists of its tokens
    for (int r = 0; r < shape.ranks; ++r) route(r, 0), group.Dispatch(r);
    group.Synchronize();
  };
  list_first();
  const Figure combine =
      normal ? Figure()
             : rig.Chain(kChain, [&](int r, int) { route(r, 0), group.Combine(r, true); });
  const Figure dispatch_event =
      rig.Event(routings, [&](int r, int i) { route(r, i), group.Dispatch(r); });
  list_first();
  const Figure combine_event =
      rig.Event(routings, [&](int r, int) { route(r, 0), group.Combine(r); });
  bool faulted = false;
  for (int r = 0; r < shape.ranks; ++r) faulted = faulted || group.State(r).fault != 0;
  const auto [sent, answered] = WireBytes(shape, forms, first);
  Report(options, name,
         {{"wrong", faulted ? -1.0 : static_cast<double>(wrong)},
          {"us p50", all.p50},
          {"p99", all.p99},
          {"dispatch", dispatch.p50},
          {"combine", combine.p50},
          {"dispatch event p50", dispatch_event.p50},
          {"combine event p50", combine_event.p50},
          {"KB out", sent / 1e3},
          {"KB back", answered / 1e3},
          {"wire us at 355 GB/s", (sent + answered) / 355e3}});
  return wrong == 0 && !faulted;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  int devices = 0;
  if (!options.list) Check(cudaGetDeviceCount(&devices), "devices");
  bool right = true;
  for (const Model& model : kModels) {
    for (const Way& way : kWays) {
      for (const int tokens : {8192, 4096, 1024, 128, 64, 32, 16, 8, 1}) {
        const bool few = tokens <= kExchangeTokensMax;
        if (way.unit == ExchangeUnit::kPerWorker ? few && way.answers != AnswerFormat::kBf16
                                                 : !few) {
          continue;
        }
        const std::string name =
            std::string(model.name) + ", " + way.name + ", " + std::to_string(tokens);
        if (!IsWanted(options, name)) continue;
        const int ranks = std::min(devices, kExchangeRanksMax);
        right = Measure(options, name,
                        {.ranks = ranks,
                         .tokens_max = std::max(tokens, 128),
                         .hidden = model.hidden,
                         .top_k = model.top_k,
                         .experts_of_rank = model.experts / ranks,
                         .formats = way.format,
                         .unit = way.unit},
                        {.format = way.format,
                         .global_scale = way.format == ExchangeFormat::kNvfp4 ? 14.5F : 1.0F,
                         .answers = way.answers},
                        tokens) &&
                right;
      }
    }
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::cuda::bench

int main(int argc, char** argv) { return switchyard::cuda::bench::Main(argc, argv); }
