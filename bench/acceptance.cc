// The speeds that the service is held to, each as a ratio to the same work in one process, to
// memcpy or to read bandwidth of the same run.
//
//   acceptance [--only layer,data_path,prefill,decode,contention,opening,traces] [--passes 9]
//              [--json FILE]
//              [--device SPEC] [--busy-poll-us N]
//
// --device: of decode, on workers with that device and in process.
// --busy-poll-us: of decode's workers and clients.
//
// Exit codes: 0 when every bound is met, 1 when one is missed, 2 when it could not measure.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"

#include "bench/figures.h"

namespace switchyard::bench {
namespace {

int Main(int argc, char** argv) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  RunOptions options;
  options.bin_dir = (self.parent_path().parent_path() / "bin").string();
  options.model = "models/sqlite-moe-7m";
  std::string only;
  std::string json;
  CLI::App app("Measures the service against what its work costs at least.");
  app.add_option("--only", only,
                 "Parts, comma separated: layer, data_path, prefill, decode, contention, opening, "
                 "traces");
  app.add_option("--passes", options.passes)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--model", options.model, "Folder of sqlite-moe-7m")->capture_default_str();
  app.add_option("--bin-dir", options.bin_dir, "Of the service programs")->capture_default_str();
  app.add_option(
      "--device", options.device,
      "Device of the workers, as in switchyard-worker --device; only with --only decode");
  app.add_option("--busy-poll-us", options.busy_poll_us, "Of decode's workers and clients")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--json", json, "Where to write all figures as one JSON object");
  CLI11_PARSE(app, argc, argv);
  if (!options.device.empty() && only != "decode") {
    std::fprintf(stderr, "--device is for --only decode\n");
    return 2;
  }

  struct Part {
    const char* name;
    void (*run)(const RunOptions&, Report*);
  };
  const std::vector<Part> parts = {
      {"layer", &LayerFigures},   {"data_path", &DataPathFigures},    {"prefill", &PrefillFigures},
      {"decode", &DecodeFigures}, {"contention", &ContentionFigures}, {"opening", &OpeningFigures},
      {"traces", &TraceFigures}};
  const std::vector<std::string> chosen = absl::StrSplit(only, ',', absl::SkipEmpty());
  Report report;
  for (const Part& part : parts) {
    if (chosen.empty() || std::ranges::find(chosen, part.name) != chosen.end()) {
      part.run(options, &report);
    }
  }
  if (!json.empty()) std::ofstream(json) << report.Json() << "\n";
  return report.all_met() ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) { return switchyard::bench::Main(argc, argv); }
