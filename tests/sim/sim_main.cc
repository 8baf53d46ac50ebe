// Runs seeds of the simulation: a failing one is replayed with --seed=N --trace.
//
//   switchyard-sim [--seed=1] [--seeds=1] [--trace]
// Exit status: 0 all seeds are well; 1 a violation: the last events before it, then its seed and
// what it was; 2 bad usage.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

#include "tests/sim/world.h"

namespace switchyard::sim {
namespace {

constexpr std::size_t kLinesOnFailure = 40;

struct Arguments {
  SimOptions options;
  std::uint64_t seeds = 1;
};

bool Parse(absl::string_view argument, Arguments* arguments) {
  if (argument == "--trace") {
    arguments->options.trace = [](const std::string& line) { std::puts(line.c_str()); };
    return true;
  }
  if (absl::ConsumePrefix(&argument, "--seed=")) {
    return absl::SimpleAtoi(argument, &arguments->options.seed);
  }
  if (absl::ConsumePrefix(&argument, "--seeds=")) {
    return absl::SimpleAtoi(argument, &arguments->seeds);
  }
  return false;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (!Parse(argv[i], &arguments)) {
      std::fprintf(stderr, "switchyard-sim: cannot use \"%s\"\n", argv[i]);
      return 2;
    }
  }
  SimStats all;
  const std::uint64_t end = arguments.options.seed + arguments.seeds;
  for (; arguments.options.seed < end; ++arguments.options.seed) {
    const SimResult result = World(arguments.options).Run();
    if (!result.violation.empty()) {
      if (arguments.options.trace == nullptr) {
        std::printf("%s\n", LastEvents(arguments.options, kLinesOnFailure).c_str());
      }
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(arguments.options.seed),
                  result.violation.c_str());
      return 1;
    }
    all.steps += result.stats.steps;
    all.faults += result.stats.faults;
    all.epochs_served += result.stats.epochs_served;
    all.switches += result.stats.switches;
    all.steps_done += result.stats.steps_done;
    all.steps_failed += result.stats.steps_failed;
  }
  std::printf(
      "%llu seeds are well: %llu events, %d faults, %d epochs served, %d switches of sources, %d "
      "steps "
      "summed exactly, %d failed with an error\n",
      static_cast<unsigned long long>(arguments.seeds), static_cast<unsigned long long>(all.steps),
      all.faults, all.epochs_served, all.switches, all.steps_done, all.steps_failed);
  return 0;
}

}  // namespace
}  // namespace switchyard::sim

int main(int argc, char** argv) { return switchyard::sim::Main(argc, argv); }
