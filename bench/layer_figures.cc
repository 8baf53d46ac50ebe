#include <vector>

#include "absl/strings/str_format.h"

#include "bench/figures.h"
#include "bench/in_process_model.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/read_bandwidth.h"
#include "bench/served_model.h"

namespace switchyard::bench {
namespace {

constexpr const char* kModel = "synthetic:hidden=2048,intermediate=768,experts=64,top_k=8,layers=1";
constexpr std::int32_t kTokens = 128;
constexpr int kThreads = 2;

struct Served {
  const char* name;
  SessionRequest wanted;
  double at_most;  // 0: for information
};

}  // namespace

void LayerFigures(const RunOptions& options, Report* report) {
  const std::vector<Served> ways = {
      {"normal, shm", {.mode = DispatchMode::kNormal, .max_tokens = kTokens}, 1.2},
      {"low_latency, shm", {.mode = DispatchMode::kLowLatency, .max_tokens = kTokens}, 1.2},
      {"normal, tcp",
       {.transport = "tcp", .mode = DispatchMode::kNormal, .max_tokens = kTokens},
       0},
      {"normal, gRPC gateway",
       {.transport = "gateway", .mode = DispatchMode::kNormal, .max_tokens = kTokens},
       0},
  };
  const ServedModel served(options.bin_dir, kModel, 4);
  std::vector<ServedSession> sessions;
  for (const Served& way : ways) sessions.push_back(served.Open(way.wanted));
  InProcessModel in_process(kModel, kThreads, kTokens);
  ReadBandwidth floor(in_process.weight_bytes(), kThreads);
  MoeBatch batch(in_process.shape(), kTokens, 7);
  const StepRequest request = batch.Request(LayerId{0});

  std::vector<double> reads;
  std::vector<double> local;
  std::vector<std::vector<double>> remote(ways.size());
  for (int pass = -1; pass < options.passes; ++pass) {
    const double read = floor.ReadOnce();
    const double own = SecondsOf([&] { in_process.Run(request); });
    if (pass >= 0) reads.push_back(read);
    if (pass >= 0) local.push_back(own);
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const double took = SecondsOf([&] { sessions[way].Run(request); });
      if (pass >= 0) remote[way].push_back(took);
    }
  }
  const double bytes = static_cast<double>(in_process.weight_bytes());
  report->Add({.name = "30B layer T=128, in process: weight bytes/s of read bandwidth",
               .value = MedianRatio(reads, local),
               .unit = "x",
               .at_least = 0.6,
               .floor = absl::StrFormat("%.1f of %.1f GB/s; %.2f ms", bytes / Median(local) / 1e9,
                                        bytes / Median(reads) / 1e9, Median(local) * 1e3)});
  for (std::size_t way = 0; way < ways.size(); ++way) {
    Figure figure{.name = absl::StrFormat("30B layer T=128, four workers, %s", ways[way].name),
                  .value = MedianRatio(remote[way], local),
                  .unit = "x",
                  .floor = absl::StrFormat("%.2f ms against %.2f ms in process",
                                           Median(remote[way]) * 1e3, Median(local) * 1e3)};
    if (ways[way].at_most > 0) figure.at_most = ways[way].at_most;
    report->Add(figure);
  }
}

}  // namespace switchyard::bench
