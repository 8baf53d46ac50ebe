#include "quantize/command_line.h"

#include <sstream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

namespace switchyard::quantize {
namespace {

constexpr int kExitUsage = 2;

constexpr char kFooter[] =
    "Routed experts are quantized; attention, router, norms, embeddings, shared experts and draft\n"
    "layers are copied as they are, and the new config names what stayed in BF16. config.json and "
    "the\n"
    "tokenizer's json and txt files come along, other files do not. OUT appears when it is "
    "complete.\n"
    "\n"
    "Schemes that store a scale of the experts' inputs (NVFP4, w4afp8, fp8_tensor_static) need\n"
    "--calibrate FILE: the largest magnitude that entered each expert's gate and up, and its "
    "down.\n"
    "  {\"switchyard_amax\": 1,\n"
    "   \"layers\": [{\"layer\": 0, \"experts\": [{\"gate_up\": 3.25, \"down\": 0.9}, ...]}, "
    "...]}\n"
    "\n"
    "Examples:\n"
    "  switchyard-quantize --list\n"
    "  switchyard-quantize --scheme fp8_block --in models/bf16 --out models/fp8\n"
    "  switchyard-quantize --scheme nvfp4 --calibrate amax.json --in models/bf16 --out "
    "models/nvfp4\n"
    "  switchyard-quantize --scheme awq --keep-bf16-layers 0,3 --in models/bf16 --out models/awq\n"
    "Exit codes: 0 done, 1 refused or failed, 2 wrong words, 130 interrupted.\n";

// What the words are read into.
struct Raw {
  CommandLine line;
  std::string scheme;
  std::string layout;
};

void AddOptions(CLI::App& app, Raw& raw) {
  QuantizeOptions& options = raw.line.options;
  app.add_flag("--list", raw.line.list, "Print the schemes: a table on a terminal, JSON elsewhere");
  app.add_option("--scheme", raw.scheme,
                 "One of --list, or what it computes with (nvfp4, fp8_block)");
  app.add_option("--layout", raw.layout, "Which of a scheme's layouts, where it has several");
  app.add_option("--in", options.in, "Folder of the BF16 checkpoint");
  app.add_option("--out", options.out, "Folder to make");
  app.add_option("--calibrate", raw.line.calibrate, "File of the inputs' largest magnitudes");
  app.add_option("--exclude", options.exclude,
                 "Keep layers in BF16 whose experts it names: '*' stands for anything, re:... is a "
                 "regular expression; may be given again")
      ->allow_extra_args(false);
  app.add_option("--keep-bf16-layers", options.keep_bf16_layers, "Numbers of layers, with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--shard-bytes", options.shard_bytes,
                 "Tensors of at most so much in a file; KB, MB, GB are understood")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  app.add_flag("--force", options.force, "Replace an older checkpoint under --out");
}

ParsedCommandLine Usage(absl::string_view what) {
  return {std::nullopt, kExitUsage,
          absl::StrCat("switchyard-quantize: ", what,
                       "\nnext: 'switchyard-quantize --help' shows how\n")};
}

ParsedCommandLine Finish(Raw raw) {
  if (raw.line.list) return {std::move(raw.line), 0, ""};
  QuantizeOptions& options = raw.line.options;
  for (const auto& [word, value] :
       {std::pair<const char*, const std::string&>{"--scheme", raw.scheme},
        {"--in", options.in},
        {"--out", options.out}}) {
    if (value.empty()) return Usage(absl::StrCat(word, " is missing"));
  }
  if (options.shard_bytes == 0) return Usage("--shard-bytes must be above 0");
  const auto scheme = FindWriteScheme(raw.scheme, raw.layout);
  if (!scheme.ok()) return Usage(scheme.status().message());
  options.scheme = *scheme;
  return {std::move(raw.line), 0, ""};
}

}  // namespace

ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words) {
  Raw raw;
  CLI::App app("Writes a BF16 Mixture-of-Experts checkpoint with its experts quantized.",
               "switchyard-quantize");
  AddOptions(app, raw);
  app.footer(kFooter);
  try {
    // CLI11 takes its words from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp& help) {
    std::ostringstream out;
    app.exit(help, out, out);
    return {std::nullopt, 0, out.str()};
  } catch (const CLI::ParseError& error) {
    return Usage(error.what());
  }
  return Finish(std::move(raw));
}

}  // namespace switchyard::quantize
