// A step by messages of NCCL beside one by stores, on the GPUs of one host, a rank and a thread on
// each: dispatch, an expert that copies rows, combine.
//
//   cuda_exchange_messages_bench [--list] [--case NAME] [--ceilings] [--json PATH]
//
// Steps behind each other on the ranks' streams, not in a graph, each of the slowest rank; p50 of
// 100. Every answer of the first tokens is compared bit by bit with what it has to be.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/exchange_rig.h"
#include "tests/cuda/exchange_group.h"
#include "worker/device/cuda/messages/nccl_group.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::ExchangeGroup;
using testing::RankTokens;

constexpr int kSteps = 100;
constexpr int kWarmSteps = 10;
constexpr std::uint64_t kPatience = 20'000'000'000;  // ns

struct Model {
  const char* name;
  int hidden;
  int top_k;
  int experts;
};
constexpr Model kModels[] = {{"DeepSeek-V3", 7168, 8, 256}, {"Qwen3-30B-A3B", 2048, 8, 128}};

struct Format {
  const char* name;
  ExchangeFormat format;
};
constexpr Format kFormats[] = {{"FP8", ExchangeFormat::kFp8}, {"BF16", ExchangeFormat::kBf16}};

void MustBe(bool right, const std::string& what) {
  if (right) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// The ranks' communicators.
class Ranks {
 public:
  explicit Ranks(int ranks) {
    std::vector<std::string> keys;
    for (int r = 0; r < ranks; ++r) {
      Check(cudaSetDevice(r), "device");
      auto group = MakeNcclGroup(ranks, r, {});
      if (absl::IsUnimplemented(group.status())) {
        std::printf("left out: %s\n", group.status().ToString().c_str());
        std::exit(0);
      }
      MustBe(group.ok(), group.status().ToString());
      keys.push_back((*group)->key());
      groups_.push_back(*std::move(group));
    }
    for (int r = 0; r < ranks; ++r) {
      Check(cudaSetDevice(r), "device");
      const absl::Status joined = groups_[static_cast<std::size_t>(r)]->Join(keys);
      MustBe(joined.ok(), joined.ToString());
    }
  }
  void Carry(int rank, const Messages& messages, const std::byte* outbox, std::byte* heap,
             cudaStream_t stream) {
    const absl::Status carried =
        groups_[static_cast<std::size_t>(rank)]->Carry(messages, outbox, heap, stream);
    MustBe(carried.ok(), carried.ToString());
  }

 private:
  std::vector<std::unique_ptr<MessageGroup>> groups_;
};

// Microseconds of a step of all ranks, each on a thread of its own.
Figure Time(ExchangeGroup& group, const std::function<void(int rank)>& step) {
  const auto ranks = static_cast<std::size_t>(group.ranks());
  std::vector<std::vector<float>> times(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < group.ranks(); ++r) {
    threads.emplace_back([&, r] {
      group.Select(r);
      std::vector<cudaEvent_t> ends(kSteps + kWarmSteps + 1);
      for (cudaEvent_t& end : ends) Check(cudaEventCreate(&end), "event");
      Check(cudaEventRecord(ends[0], group.stream(r)), "record");
      for (std::size_t i = 1; i < ends.size(); ++i) {
        step(r);
        Check(cudaEventRecord(ends[i], group.stream(r)), "record");
      }
      Check(cudaStreamSynchronize(group.stream(r)), "steps");
      for (std::size_t i = kWarmSteps + 1; i < ends.size(); ++i) {
        float milliseconds = 0;
        Check(cudaEventElapsedTime(&milliseconds, ends[i - 1], ends[i]), "elapsed");
        times[static_cast<std::size_t>(r)].push_back(milliseconds * 1e3F);
      }
      for (const cudaEvent_t end : ends) Check(cudaEventDestroy(end), "event");
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> slowest;
  for (std::size_t i = 0; i < kSteps; ++i) {
    float most = 0;
    for (const auto& of_rank : times) most = std::max(most, of_rank[i]);
    slowest.push_back(most);
  }
  return Summarize(slowest);
}

std::unique_ptr<ExchangeGroup> MakeGroup(const ExchangeShape& shape,
                                         const std::vector<RankTokens>& tokens) {
  auto group = std::make_unique<ExchangeGroup>(shape, shape.ranks, kPatience);
  for (int r = 0; r < shape.ranks; ++r) {
    group->SetTokens(r, tokens[static_cast<std::size_t>(r)],
                     tokens[static_cast<std::size_t>(r)].tokens);
    group->PoisonOut(r);
  }
  return group;
}

bool Measure(const Options& options, const std::string& name, const ExchangeShape& shape,
             int tokens) {
  Watchdog(90);
  std::mt19937_64 random(17);
  std::vector<RankTokens> all;
  for (int r = 0; r < shape.ranks; ++r) {
    all.push_back(testing::RandomTokens(shape, tokens, 0.0, random));
  }
  const auto by_stores = MakeGroup(shape, all);
  const Figure stores = Time(*by_stores, [&by_stores](int r) {
    by_stores->Dispatch(r);
    by_stores->Experts(r);
    by_stores->Combine(r);
  });
  ExchangeShape of_messages = shape;
  of_messages.by_messages = true;
  const auto by_messages = MakeGroup(of_messages, all);
  Ranks ranks(shape.ranks);
  const Figure messages = Time(*by_messages, [&](int r) {
    by_messages->StepByMessages(
        r, [&](const Messages& parts, const std::byte* outbox, std::byte* heap,
               cudaStream_t stream) { ranks.Carry(r, parts, outbox, heap, stream); });
  });
  const int wrong_stores = WrongValues(*by_stores, all);
  const int wrong_messages = WrongValues(*by_messages, all);
  const int wrong = std::min(wrong_stores, wrong_messages) < 0 ? -1 : wrong_stores + wrong_messages;
  const double rows = static_cast<double>(tokens) * by_messages->rank(0).layout.row_stride;
  const double answers = static_cast<double>(tokens) * by_messages->rank(0).layout.answer_stride;
  Report(options, name,
         {{"wrong", static_cast<double>(wrong)},
          {"us p50", messages.p50},
          {"p99", messages.p99},
          {"by stores", stores.p50},
          {"messages / stores", messages.p50 / stores.p50},
          {"wire us at 355 GB/s", (rows + answers) * (shape.ranks - 1) / 355e3}});
  return wrong == 0;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  int devices = 0;
  if (!options.list) Check(cudaGetDeviceCount(&devices), "devices");
  bool right = true;
  for (const Model& model : kModels) {
    for (const Format& format : kFormats) {
      for (const int tokens : {4096, 1024, 128, 16, 1}) {
        const std::string name =
            std::string(model.name) + ", " + format.name + ", " + std::to_string(tokens);
        if (!IsWanted(options, name)) continue;
        const int ranks = std::min(devices, kExchangeRanksMax);
        right = Measure(options, name,
                        {.ranks = ranks,
                         .tokens_max = std::max(tokens, 128),
                         .hidden = model.hidden,
                         .top_k = model.top_k,
                         .experts_of_rank = model.experts / std::max(ranks, 1),
                         .formats = format.format},
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
