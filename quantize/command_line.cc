#include "quantize/command_line.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "core/base/units.h"
#include "core/cli/command_line.h"

namespace switchyard::quantize {
namespace {

constexpr char kFooter[] =
    "Routed experts are quantized; attention, router, norms, embeddings, shared experts and draft\n"
    "layers are copied unchanged, and the new config lists the modules that stay in BF16.\n"
    "config.json and the tokenizer's json and txt files are copied, other files are not. OUT "
    "appears\n"
    "when it is complete.\n"
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
    "Exit codes: 0 done, 1 refused or failed, 2 wrong command line, 130 interrupted.\n";

// CLI11 fills this; Finish checks it.
struct Raw {
  CommandLine line;
  std::string scheme;
  std::string layout;
  std::string shard;
};

void AddOptions(CLI::App& app, Raw& raw) {
  QuantizeOptions& options = raw.line.options;
  app.add_flag("--list", raw.line.list, "Print the schemes: a table on a terminal, JSON elsewhere");
  app.add_option("--scheme", raw.scheme,
                 "A name from --list, or a quant scheme (nvfp4, fp8_block)");
  app.add_option("--layout", raw.layout, "The layout, for a quant scheme that has several");
  app.add_option("--in", options.in, "Folder of the BF16 checkpoint");
  app.add_option("--out", options.out, "Folder to create");
  app.add_option("--calibrate", raw.line.calibrate, "File with the inputs' largest magnitudes");
  app.add_option("--exclude", options.exclude,
                 "Pattern of experts whose layers stay in BF16: '*' matches anything, re:... is a "
                 "regular expression; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--keep-bf16-layers", options.keep_bf16_layers,
                 "Layers that stay in BF16, as numbers separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  raw.shard = BytesText(static_cast<std::int64_t>(options.shard_bytes));
  app.add_option("--shard-bytes", raw.shard,
                 "Largest size of the tensors in one file, for example 500MB or 5GiB")
      ->capture_default_str();
  app.add_flag("--force", options.force, "Replace an older checkpoint under --out");
}

constexpr char kProgram[] = "switchyard-quantize";

ParsedCommandLine Usage(absl::string_view what) {
  ProgramEnd end = UsageMistake(kProgram, what);
  return {std::nullopt, end.exit_code, std::move(end.text)};
}

// CLI11 could require options itself, but then --list would need them too.
ParsedCommandLine Finish(Raw raw) {
  // --list ignores the other options, so that it can be added to any command line.
  if (raw.line.list) return {std::move(raw.line), 0, ""};
  QuantizeOptions& options = raw.line.options;
  for (const auto& [word, value] :
       {std::pair<const char*, const std::string&>{"--scheme", raw.scheme},
        {"--in", options.in},
        {"--out", options.out}}) {
    if (value.empty()) return Usage(absl::StrCat(word, " is missing"));
  }
  // A shard of no bytes could hold no tensor.
  const auto shard = ParseBytes(raw.shard);
  if (!shard || *shard == 0) {
    return Usage(absl::StrCat("--shard-bytes: \"", raw.shard,
                              "\" is not an amount of bytes above 0; examples: ", kBytesExamples));
  }
  options.shard_bytes = static_cast<decltype(options.shard_bytes)>(*shard);
  const auto scheme = FindWriteScheme(raw.scheme, raw.layout);
  if (!scheme.ok()) return Usage(scheme.status().message());
  options.scheme = *scheme;
  return {std::move(raw.line), 0, ""};
}

}  // namespace

ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words) {
  Raw raw;
  CLI::App app("Writes a BF16 Mixture-of-Experts checkpoint with its experts quantized.", kProgram);
  AddVersionFlag(app);
  AddOptions(app, raw);
  app.footer(kFooter);
  if (auto end = ParseWords(app, words)) {
    return {std::nullopt, end->exit_code, std::move(end->text)};
  }
  return Finish(std::move(raw));
}

}  // namespace switchyard::quantize
