// One rank of a group in a process of its own, for host_exchange_process_test.
//
//   host_exchange_rank RANK RANKS STEPS PATIENCE_MS
//
// Prints its key, reads those of all ranks, one a line, and prints "joined" or why not. After the
// line "go" it makes the steps, of tokens that follow from rank and step, and compares every
// answer. Prints "running" after 50 steps, and in the end "ok", "wrong STEP", or "fault MS MESSAGE"
// with the time from the step's begin on; then how many mappings of shared memory it has left.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "tests/testing/exchange_ranks.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::ExchangeOracle;
using testing::ExchangeRankRun;
using testing::ExchangeTokens;
using testing::RandomTokens;

ExchangeSpec SpecOf(std::int32_t ranks) {
  return {.shape = {.hidden = 64, .intermediate = 32, .experts = 12, .top_k = 4},
          .ranks = ranks,
          .expert_ranks = std::max(1, ranks - 1),
          .tokens_max = 8,
          .wire = kFp8Format};
}

std::string Run(ExchangeRankRun& rank, ExchangeOracle& oracle, const ExchangeSpec& spec, int number,
                int steps) {
  for (int step = 0; step < steps; ++step) {
    SeededRng rng(static_cast<std::uint64_t>(step) * 100 + static_cast<std::uint64_t>(number));
    const auto count = static_cast<std::int32_t>(rng.Below(9));
    const ExchangeTokens tokens = RandomTokens(spec, count, rng);
    const auto begin = std::chrono::steady_clock::now();
    const absl::Status begun = rank.Begin(tokens, spec.tokens_max);
    if (!begun.ok()) return std::string(begun.message());
    if (!rank.Finish(std::chrono::seconds(60))) return "hangs";
    const auto took = std::chrono::steady_clock::now() - begin;
    if (const absl::Status fault = rank.exchange().Fault(); !fault.ok()) {
      return absl::StrCat("fault ",
                          std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), " ",
                          fault.message());
    }
    if (rank.y() != oracle.Answer(tokens)) return absl::StrCat("wrong ", step);
    if (step == 49) std::cout << "running" << std::endl;
  }
  return "ok";
}

int SharedMemoryHere() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += absl::StrContains(line, "switchyard-shared") ? 1 : 0;
  }
  return count;
}

int Main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int number = std::atoi(argv[1]);
  const ExchangeSpec spec = SpecOf(std::atoi(argv[2]));
  auto device = CpuBackend::Create({.kernel_family = "scalar"});
  if (!device.ok()) return 1;
  ExchangeOracle oracle(device->get(), spec);
  {
    ExchangeRankRun rank(device->get(), spec, number);
    std::cout << absl::BytesToHexString(rank.exchange().key()) << std::endl;
    std::vector<std::string> keys(static_cast<std::size_t>(spec.ranks));
    for (std::string& key : keys) {
      std::string hex;
      std::getline(std::cin, hex);
      key = absl::HexStringToBytes(hex);
    }
    const absl::Status joined =
        rank.exchange().Join(keys, std::chrono::milliseconds(std::atoi(argv[4])));
    std::cout << (joined.ok() ? "joined" : std::string(joined.message())) << std::endl;
    std::string go;
    if (!std::getline(std::cin, go)) return 0;
    std::cout << Run(rank, oracle, spec, number, std::atoi(argv[3])) << std::endl;
  }
  std::cout << SharedMemoryHere() << std::endl;
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::Main(argc, argv); }
