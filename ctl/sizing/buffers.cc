#include "ctl/sizing/buffers.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/dispatch_mode.h"
#include "core/format/wire_format.h"
#include "core/resolve/buffer_hints.h"
#include "core/resolve/staging_bytes.h"
#include "model/checkpoint_summary.h"
#include "report/text_table.h"

namespace switchyard::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kLowLatency[] = "low_latency";
constexpr char kNormal[] = "normal";
constexpr double kMiB = 1024.0 * 1024.0;

// The rows of one step of one rank, as our own frames have them.
void AddOwn(const MoeShape& shape, const BufferOptions& options, std::vector<BufferNeed>& needs) {
  for (const DispatchMode mode : {DispatchMode::kLowLatency, DispatchMode::kNormal}) {
    const bool normal = mode == DispatchMode::kNormal;
    const std::int64_t rows = RowsOf({.tokens = normal ? options.normal_tokens : options.tokens,
                                      .top_k = shape.top_k,
                                      .workers = options.ranks},
                                     mode);
    const char* name = normal ? kNormal : kLowLatency;
    for (const NamedWireFormat& format : WireFormats()) {
      const StagingBytes row = StagingBytesPerRow(format.format, shape.hidden, mode);
      needs.push_back({.library = "switchyard",
                       .buffer = "rows of a step, sent",
                       .mode = name,
                       .dtype = format.name,
                       .bytes = rows * row.dispatch});
    }
    const StagingBytes answer = StagingBytesPerRow(kBf16Format, shape.hidden, mode);
    needs.push_back({.library = "switchyard",
                     .buffer = "answers of a step",
                     .mode = name,
                     .bytes = rows * answer.combine});
  }
}

void AddDeepEp(const MoeShape& shape, const BufferOptions& options,
               std::vector<BufferNeed>& needs) {
  needs.push_back({.library = "deepep_v1",
                   .buffer = "RDMA buffer",
                   .mode = kLowLatency,
                   .bytes = DeepEpLowLatencyBytes(options.tokens, shape.hidden, shape.experts)});
  const DeepEpNormal rows{.ranks = options.ranks, .sms = options.sms, .recv_chunk = options.chunk};
  const std::int64_t combine = DeepEpNormalCombineBytes(rows, shape.hidden);
  for (const auto& [dtype, value_bytes] :
       {std::pair{"bf16", std::int64_t{2}}, std::pair{"fp8", std::int64_t{1}}}) {
    DeepEpNormal hint = rows;
    hint.hidden_bytes = shape.hidden * value_bytes;
    BufferNeed need{.library = "deepep_v1",
                    .buffer = "NVLink buffer, by its hint",
                    .mode = kNormal,
                    .dtype = dtype,
                    .bytes = DeepEpNormalHintBytes(hint)};
    // A buffer of that size aborts in combine, however the rows were dispatched.
    if (need.bytes < combine) need.remark = "too small for combine: size it for bf16";
    needs.push_back(std::move(need));
  }
  needs.push_back({.library = "deepep_v1",
                   .buffer = "NVLink buffer, for combine",
                   .mode = kNormal,
                   .bytes = combine});
}

void AddHccl(const MoeShape& shape, const BufferOptions& options, std::vector<BufferNeed>& needs) {
  HcclShape step{.tokens = options.tokens,
                 .hidden = shape.hidden,
                 .ranks = options.ranks,
                 .local_experts = shape.experts / options.ranks,
                 .top_k = shape.top_k,
                 .shared_experts = options.shared_experts};
  const auto add = [&](const char* buffer, const char* mode, const char* dtype,
                       std::int64_t bytes) {
    BufferNeed need{
        .library = "hccl", .buffer = buffer, .mode = mode, .dtype = dtype, .bytes = bytes};
    if (options.hccl_mb > 0) need.fits = CheckHcclWindow(bytes, options.hccl_mb);
    if (!need.fits.ok()) {
      need.remark = absl::StrFormat("HCCL_BUFFSIZE %d is too small", options.hccl_mb);
    }
    needs.push_back(std::move(need));
  };
  constexpr std::pair<const char*, DispatchDtype> kDtypes[] = {{"bf16", DispatchDtype::kBf16},
                                                               {"int8", DispatchDtype::kInt8}};
  for (const auto& [name, dtype] : kDtypes) {
    add("window", kLowLatency, name, HcclLowLatencyBytes(step, dtype));
  }
  add("window, fused operator", kLowLatency, "", HcclFusedBytes(step));
  step.tokens = options.normal_tokens;
  for (const auto& [name, dtype] : kDtypes) {
    add("window", kNormal, name, HcclNormalBytes(step, dtype, /*rounds=*/1));
  }
}

}  // namespace

std::vector<BufferNeed> BuffersOf(const MoeShape& shape, const BufferOptions& options) {
  std::vector<BufferNeed> needs;
  AddOwn(shape, options, needs);
  AddDeepEp(shape, options, needs);
  AddHccl(shape, options, needs);
  return needs;
}

absl::StatusOr<BufferSizes> SizeBuffers(const BufferOptions& options) {
  SY_ASSIGN_OR_RETURN(const CheckpointSummary summary, SummarizeCheckpoint(options.path));
  const MoeShape& shape = summary.outline.shape;
  if (shape.top_k == 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("config.json of ", options.path,
                                  " has no num_experts_per_tok, which the sizes depend on"),
                     {{"checkpoint", options.path}});
  }
  if (options.sms % 2 != 0) {
    // Half of them send and half receive.
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("--sms %d: DeepEP takes an even number", options.sms), {});
  }
  if (shape.experts % options.ranks != 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("%d experts cannot be shared evenly by %d ranks, which EP "
                                     "libraries require; choose --ranks so that it divides them",
                                     shape.experts, options.ranks),
                     {{"checkpoint", options.path}});
  }
  return BufferSizes{shape, options, BuffersOf(shape, options)};
}

absl::Status CheckWindows(const BufferSizes& sizes) {
  for (const BufferNeed& need : sizes.needs) {
    if (!need.fits.ok()) return need.fits;
  }
  return absl::OkStatus();
}

std::string BuffersText(const BufferSizes& sizes, std::size_t width) {
  const MoeShape& shape = sizes.shape;
  const BufferOptions& options = sizes.options;
  TextTable table({"LIBRARY", "BUFFER", "MODE", "ROWS", "MIB", "REMARK"});
  for (const BufferNeed& need : sizes.needs) {
    const auto mib = static_cast<double>(need.bytes) / kMiB;
    table.Add({need.library, need.buffer, need.mode, need.dtype.empty() ? "any" : need.dtype,
               absl::StrFormat("%.2f", mib), need.remark});
  }
  return absl::StrFormat(
      "%d experts, hidden %d, top-%d; %d ranks, steps of up to %d tokens (low_latency) and %d "
      "(normal)\n\n%s",
      shape.experts, shape.hidden, shape.top_k, options.ranks, options.tokens,
      options.normal_tokens, table.Print("", width));
}

nlohmann::ordered_json BuffersJson(const BufferSizes& sizes) {
  Json needs = Json::array();
  for (const BufferNeed& need : sizes.needs) {
    Json row{{"library", need.library},
             {"buffer", need.buffer},
             {"mode", need.mode},
             {"bytes", need.bytes}};
    if (!need.dtype.empty()) row["dtype"] = need.dtype;
    if (!need.remark.empty()) row["remark"] = need.remark;
    needs.push_back(std::move(row));
  }
  return {{"shape",
           {{"hidden", sizes.shape.hidden},
            {"experts", sizes.shape.experts},
            {"top_k", sizes.shape.top_k}}},
          {"ranks", sizes.options.ranks},
          {"tokens", sizes.options.tokens},
          {"normal_tokens", sizes.options.normal_tokens},
          {"buffers", std::move(needs)}};
}

// Counts that buffers grow with. Their bounds keep every size below 2^63.
CLI::App* AddBuffersVerb(CLI::App& model, BufferOptions* options) {
  CLI::App* verb = model.add_subcommand(
      "buffers", "Show the buffers that DeepEP and HCCL would need, beside our own rows");
  BufferOptions& all = *options;
  verb->add_option("PATH", all.path, "The checkpoint's folder")->required();
  const auto count = [verb](const char* flag, std::int64_t& value, std::int64_t most,
                            const char* help) {
    verb->add_option(flag, value, help)
        ->check(CLI::Range(std::int64_t{1}, most))
        ->capture_default_str();
  };
  count("--ranks", all.ranks, 1024, "Ranks that share the experts");
  count("--tokens", all.tokens, 4096, "Tokens of a rank's step in low_latency mode, at most");
  count("--normal-tokens", all.normal_tokens, 131072, "Tokens of a rank's step in normal mode");
  count("--sms", all.sms, 1024, "SMs of DeepEP's normal mode, even");
  count("--chunk", all.chunk, 65536, "Its num_max_nvl_chunked_recv_tokens");
  verb->add_option("--shared-experts", all.shared_experts,
                   "Shared experts that travel too, on NPUs")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{64}));
  verb->add_option("--hccl-buffsize", all.hccl_mb,
                   "HCCL_BUFFSIZE of the workers in MiB: exit code 1 if a window needs more")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  verb->footer(
      "-o table|json: output format (default: table on a terminal, else json).\n"
      "Examples:\n"
      "  syctl model buffers models/sqlite-moe-7m --ranks 4\n"
      "  syctl model buffers /models/deepseek-v3 --ranks 16 --hccl-buffsize 600\n");
  return verb;
}

}  // namespace switchyard::ctl
