#include "bench/cuda/exchange_rig.h"

#include <algorithm>

#include "tests/cuda/device_kernels.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::ExchangeGroup;
using testing::RankTokens;

constexpr std::int64_t kFlushBytes = std::int64_t{320} << 20;
constexpr int kChains = 40;
constexpr int kWarmChains = 5;
constexpr int kEvents = 200;

void Destroy(const std::vector<cudaGraphExec_t>& graphs) {
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
}

}  // namespace

int WrongValues(ExchangeGroup& group, const std::vector<RankTokens>& tokens) {
  int wrong = 0;
  for (int r = 0; r < group.ranks(); ++r) {
    if (group.State(r).fault != 0) return -1;
    if (!group.WrongLists(r, tokens).empty()) ++wrong;
    const auto out = group.Out(r);
    const RankTokens& own = tokens[static_cast<std::size_t>(r)];
    for (int t = 0; t < own.tokens; t += std::max(1, own.tokens / 8)) {
      const auto wanted = ExpectedToken(group.shape(), group.forms(), own, t);
      for (std::size_t c = 0; c < wanted.size(); ++c) {
        wrong += out[static_cast<std::size_t>(t * group.shape().hidden) + c] != wanted[c];
      }
    }
  }
  return wrong;
}

GroupRig::GroupRig(testing::ExchangeGroup* group) : group_(group) {
  for (int r = 0; r < group->ranks(); ++r) {
    group->Select(r);
    flushed_.emplace_back(kFlushBytes);
    begins_.emplace_back();
    ends_.emplace_back();
    Check(cudaEventCreate(&begins_.back()), "event");
    Check(cudaEventCreate(&ends_.back()), "event");
  }
}

GroupRig::~GroupRig() {
  for (const cudaEvent_t event : begins_) cudaEventDestroy(event);
  for (const cudaEvent_t event : ends_) cudaEventDestroy(event);
}

Figure GroupRig::Chain(int count, const Operation& operation) {
  const auto graphs = Capture(operation, count, /*flush=*/false);
  std::vector<double> times;
  for (int i = 0; i < kChains + kWarmChains; ++i) {
    const double time = Replay(graphs) / count;
    if (i >= kWarmChains) times.push_back(time);
  }
  Destroy(graphs);
  return Summarize(times);
}

Figure GroupRig::Event(int variants, const Operation& operation) {
  std::vector<std::vector<cudaGraphExec_t>> graphs;
  for (int v = 0; v < variants; ++v) {
    graphs.push_back(Capture([&](int rank, int) { operation(rank, v); }, 1, /*flush=*/true));
  }
  std::vector<double> times;
  for (int i = 0; i < kEvents + variants; ++i) {
    const double time = Replay(graphs[static_cast<std::size_t>(i % variants)]);
    if (i >= variants) times.push_back(time);
  }
  for (const auto& of_ranks : graphs) Destroy(of_ranks);
  return Summarize(times);
}

std::vector<cudaGraphExec_t> GroupRig::Capture(const Operation& operation, int count, bool flush) {
  std::vector<cudaGraphExec_t> graphs;
  for (int r = 0; r < group_->ranks(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const cudaStream_t stream = group_->stream(r);
    cudaGraph_t graph = nullptr;
    group_->Select(r);
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    if (flush) testing::Flush(flushed_[at].get(), flushed_[at].count(), stream);
    group_->Barrier(r);
    Check(cudaEventRecordWithFlags(begins_[at], stream, cudaEventRecordExternal), "record");
    for (int i = 0; i < count; ++i) operation(r, i);
    Check(cudaEventRecordWithFlags(ends_[at], stream, cudaEventRecordExternal), "record");
    Check(cudaStreamEndCapture(stream, &graph), "capture");
    graphs.emplace_back();
    Check(cudaGraphInstantiate(&graphs.back(), graph, 0), "graph");
    Check(cudaGraphDestroy(graph), "graph");
  }
  return graphs;
}

double GroupRig::Replay(const std::vector<cudaGraphExec_t>& graphs) {
  for (int r = 0; r < group_->ranks(); ++r) {
    group_->Select(r);
    Check(cudaGraphLaunch(graphs[static_cast<std::size_t>(r)], group_->stream(r)), "replay");
  }
  group_->Synchronize();
  double slowest = 0;
  for (int r = 0; r < group_->ranks(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begins_[at], ends_[at]), "elapsed");
    slowest = std::max(slowest, static_cast<double>(milliseconds) * 1e3);
  }
  return slowest;
}

}  // namespace switchyard::cuda::bench
