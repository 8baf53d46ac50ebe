// generate: continues a prompt, prints each token immediately, and ends with a short report on
// stderr. With --text it only feeds a text. With --record-amax it writes the magnitudes at the
// experts to a file for calibration. Exit codes: core/cli/exit_code.h.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/cli/process_end.h"
#include "examples/qwen3_moe/byte_tokenizer.h"
#include "examples/qwen3_moe/feed_text.h"
#include "examples/qwen3_moe/generate.h"
#include "model/quant/config/amax_file.h"
#include "tools/cli/command_line.h"
#include "tools/cli/run_report.h"
#include "tools/deployment/amax_record.h"

namespace switchyard::qwen3_moe {
namespace {

struct Options {
  CommonOptions common;
  std::string prompt;
  std::size_t tokens = 200;
  SamplingOptions sampling;
  bool explain = false;
  std::string text;
  std::string record_amax;
};

// Flushed, so that text appears while it is generated.
void Show(absl::string_view bytes) {
  std::fputs(Printable(bytes).c_str(), stdout);
  std::fflush(stdout);
}

// The record file, opened before the model runs, so that a wrong path fails early. nullptr without
// --record-amax.
using Record = std::unique_ptr<AmaxFileWriter>;

absl::StatusOr<Record> OpenRecord(const Options& options) {
  if (options.record_amax.empty()) return Record();
  return AmaxFileWriter::Open(options.record_amax);
}

// Writes the workers' records to the file.
absl::Status WriteRecord(const Record& record, const Model& model, const ExpertsReport& experts) {
  if (record == nullptr) return absl::OkStatus();
  const AmaxShape shape{.layers = model.decoder->dims().layers,
                        .experts = model.decoder->dims().experts};
  SY_ASSIGN_OR_RETURN(const AmaxTable table, MergeAmax(shape, experts.hits));
  return record->Commit(table);
}

absl::Status RunText(const Options& options, const Model& model, const Record& record) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.text));
  SY_ASSIGN_OR_RETURN(const std::size_t windows,
                      FeedText(*model.decoder, model.moe->prefill(), text));
  SY_ASSIGN_OR_RETURN(const ExpertsReport experts, model.moe->Report());
  // To stderr like every report: stdout is for generated text.
  std::fputs(FeedTable(text.size(), windows, experts).c_str(), stderr);
  return WriteRecord(record, model, experts);
}

absl::Status RunPrompt(const Options& options, const Model& model, const Record& record) {
  SY_RETURN_IF_ERROR(CheckByteVocabulary(model.decoder->dims().vocab));
  const std::vector<std::int32_t> prompt = EncodeBytes(options.prompt);
  const SteadyClock clock;
  Show(options.prompt);
  const absl::StatusOr<GenerateReport> report =
      Generate({.decoder = *model.decoder,
                .prefill = model.moe->prefill(),
                .decode = model.moe->decode(),
                .clock = clock},
               {.prompt = prompt,
                .tokens = options.tokens,
                .sampling = options.sampling,
                .stop = model.checkpoint->config().decoder->eos_token_ids,
                .on_token = [](std::int32_t token) {
                  Show(DecodeBytes({&token, 1}));
                }});
  Show("\n");
  if (!report.ok()) return report.status();
  SY_ASSIGN_OR_RETURN(const ExpertsReport experts, model.moe->Report());
  std::fputs(GenerateTable(*report, experts).c_str(), stderr);
  if (options.explain) std::fputs(model.moe->Describe().c_str(), stderr);
  return WriteRecord(record, model, experts);
}

absl::Status Run(const Options& options) {
  SY_ASSIGN_OR_RETURN(const Record record, OpenRecord(options));
  SY_ASSIGN_OR_RETURN(const Model model, OpenModel(options.common));
  if (record != nullptr) {
    const std::string warning = QuantizedWarning(*model.checkpoint);
    if (!warning.empty()) std::fprintf(stderr, "warning: --record-amax: %s\n", warning.c_str());
  }
  return options.text.empty() ? RunPrompt(options, model, record) : RunText(options, model, record);
}

int Main(int argc, char** argv) {
  CLI::App app("Generates text from a prompt.", "generate");
  Options options;
  AddCommonOptions(app, options.common, /*with_format=*/false);
  auto* input = app.add_option_group("input", "The input, exactly one of")->require_option(1);
  input->add_option("--prompt", options.prompt, "Text to continue");
  input->add_option("--text", options.text,
                    "File to feed in windows of 512 bytes, without generating text");
  app.add_option("--tokens", options.tokens, "Most tokens to generate")->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature, "Temperature; 0: greedy")
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p, "Share of the probability to sample from")
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "Seed for sampling")->capture_default_str();
  app.add_flag("--explain", options.explain, "Also print the placement and each layer's config");
  app.add_option(
      "--record-amax", options.record_amax,
      "Write the largest magnitudes at each expert to this file, for switchyard-quantize "
      "--calibrate");
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  options.common.moe.record_amax = !options.record_amax.empty();
  const absl::Status status = Run(options);
  return status.ok() ? kExitDone : CouldNotRun(status, options.common);
}

}  // namespace
}  // namespace switchyard::qwen3_moe

int main(int argc, char** argv) {
  switchyard::KeepTlsForThreads();
  return switchyard::qwen3_moe::Main(argc, argv);
}
