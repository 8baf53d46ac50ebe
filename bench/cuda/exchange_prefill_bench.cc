// A layer at prefill on the GPUs of one host, a rank on each, in one graph: BF16 tokens, dispatch
// in FP8, the experts' products from rows where they landed, combine to BF16 sums. The exchange
// beside the products, against one after the other, each with all SMs.
//
//   cuda_exchange_prefill_bench [--list] [--case NAME] [--ceilings] [--json PATH]
//
//   serial   dispatch, two products, combine; each has all SMs
//   halves   two halves of the tokens in turn: the exchange of one beside the products of the other
//
// While both run, the exchange has the SMs that the case names and the products the others. Each
// figure is of the slowest rank, p50 of 40 replays of a graph of layers behind each other, by
// layer. The answers of serial layers of few tokens are held against products in FP64, and all
// answers of the others against the serial ones', bit by bit.
#include <algorithm>
#include <string>
#include <vector>

#include "bench/cuda/exchange_rig.h"
#include "bench/cuda/prefill_layer.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;

constexpr PrefillModel kModels[] = {{"Qwen3-30B-A3B", {2048, 768}, 128, 8, 4, 16},
                                    {"DeepSeek-V3", {7168, 2048}, 256, 8, 1, 8}};
constexpr int kExchangeSms[] = {12, 16, 20, 24, 32, 40};
constexpr double kErrorMax = 0.02;  // hidden rows are rounded to BF16 before they are FP8

// Words of the two answers that differ.
std::size_t Differences(const std::vector<std::uint16_t>& one,
                        const std::vector<std::uint16_t>& other) {
  std::size_t count = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) count += one[i] != other[i];
  return count;
}

bool Measure(const Options& options, const PrefillModel& model, int ranks, int tokens,
             const std::string& name) {
  Watchdog(120);
  const auto all_tokens = TokensOf(model, ranks, tokens);
  PrefillLayer layer(model, all_tokens, 1);
  const double error = layer.Error();
  GroupRig rig(&layer.group(0));
  const auto run = [&](const GroupRig::Operation& operation) {
    return rig.Chain(model.chain, operation);
  };
  const Figure serial = run([&](int r, int i) { layer.Serial(r, i); });
  const auto wanted = layer.Answers();
  const Figure products = run([&](int r, int i) { layer.Products(r, i); });
  const Figure exchange = run([&](int r, int) { layer.Exchange(r); });
  bool right = error < kErrorMax && !layer.faulted();
  Report(options, name + ", serial",
         {{"right", right ? 1.0 : 0.0},
          {"us p50", serial.p50},
          {"p99", serial.p99},
          {"products", products.p50},
          {"exchange", exchange.p50},
          {"operations at 1979 TFLOPS", layer.Operations()},
          {"wire us at 355 GB/s", layer.Wire()},
          {"relative error 1e-3", error * 1e3}});
  const auto report = [&](const std::string& way, const Figure& figure, PrefillLayer& of) {
    const std::size_t differences = Differences(of.Answers(), wanted);
    const bool fits = differences == 0 && !of.faulted();
    Report(options, name + ", " + way,
           {{"right", fits ? 1.0 : 0.0},
            {"us p50", figure.p50},
            {"p99", figure.p99},
            {"serial / this", serial.p50 / figure.p50},
            {"differences", static_cast<double>(differences)}});
    right = right && fits;
  };
  PrefillLayer halves(model, all_tokens, 2);
  GroupRig halves_rig(&halves.group(0));
  for (const int sms : kExchangeSms) {
    halves.PoisonAnswers();
    halves.Share(sms);
    report("halves, " + std::to_string(sms) + " SMs",
           halves_rig.Chain(model.chain, [&](int r, int i) { halves.InHalves(r, i, model.chain); }),
           halves);
  }
  return right;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  int devices = 0;
  if (!options.list) Check(cudaGetDeviceCount(&devices), "devices");
  bool right = true;
  for (const PrefillModel& model : kModels) {
    for (const int tokens : {4096, 1024}) {
      const std::string name = std::string(model.name) + ", " + std::to_string(tokens);
      if (!IsWanted(options, name)) continue;
      right = Measure(options, model, std::min(devices, kExchangeRanksMax), tokens, name) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::cuda::bench

int main(int argc, char** argv) { return switchyard::cuda::bench::Main(argc, argv); }
