// The explanation of how rows of one layer travel: every rule that was evaluated, the adjustments
// afterwards, the warnings, and the outcome or the refusal. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/dispatch_config.h"
#include "core/format/wire_format.h"
#include "core/resolve/dtype_order.h"
#include "core/resolve/staging_bytes.h"

namespace switchyard {

// A draft (MTP) layer may be stored without quantization in a checkpoint that is quantized.
enum class LayerRole : std::uint8_t { kBase = 0, kDraft = 1 };

// Changes after the rules, in the order in which they apply.
enum class AdjustmentId : std::uint8_t {
  kUnquantizedLayer = 0,  // its experts take only BF16
  kNvfp4Normal = 1,       // normal mode sends NVFP4 layers BF16
  kHardware = 2,          // the device takes another dtype in its place
  kNormalRanks = 3,       // no quantized rows in normal mode with so many ranks
  kCapability = 4,        // one end did not prove that it can
};
// Part of the trail that plans store; never changes.
absl::string_view AdjustmentName(AdjustmentId id);  // "unquantized_layer", ...

// One change: the dtype before and after it, and the reason as a clause.
struct Adjustment {
  AdjustmentId id = AdjustmentId::kHardware;
  DispatchDtype from = DispatchDtype::kBf16;
  DispatchDtype to = DispatchDtype::kBf16;
  std::string why;
};

// Reported once for each process and id, not for each layer: see core/base/once_set.h.
// Stable: logs and metadata name them. Append only.
enum class WarningId : std::uint8_t {
  kDeprecatedBf16Flag = 0,
  kDeprecatedNpuInt8Flag = 1,
  kDeprecatedBf16Key = 2,
  kUnquantizedKeepsBf16 = 3,
  kNvfp4NormalSendsBf16 = 4,
  kFp8ToInt8 = 5,
  kInt8ToFp8 = 6,
  kNormalRanksSendBf16 = 7,
  kW4A4IsSlow = 8,
  kDeprecatedOption = 9,  // a spelling of the option
};
absl::string_view WarningName(WarningId id);  // "deprecated_bf16_flag", ...; the reason of "once"

// `text` is complete; the id decides whether it was reported before.
struct Warning {
  WarningId id = WarningId::kFp8ToInt8;
  std::string text;
};

// The decision's inputs, as far as a reader of the explanation needs them.
struct TraceSubject {
  std::string deployment;
  std::string model;
  LayerId layer;
  LayerRole role = LayerRole::kBase;
  bool excluded = false;  // the checkpoint's quantization leaves this layer out
  Phase phase = Phase::kMixed;
  Edge edge;
  std::string worker_profiles;  // names, comma between them
  std::optional<QuantScheme> scheme;
  RunnerBackend runner = RunnerBackend::kAuto;
};

// The decision itself, with the sizes that follow from it.
struct DispatchOutcome {
  DispatchMode mode = DispatchMode::kNormal;
  WireFormat format;
  DispatchDtype combine_dtype = DispatchDtype::kBf16;  // always
  bool use_fp8 = false;    // FP8 or INT8, as SGLang's dispatcher names it
  bool use_nvfp4 = false;  // NVFP4
  bool graphs = false;     // steps can be captured into a graph and replayed
  RowBytes wire;           // of one row on the way to the experts
  std::int64_t combine_row_bytes = 0;
  StagingBytes staging;  // of one step or chunk

  [[nodiscard]] DispatchDtype dtype() const { return format.dtype; }
};

// Exactly one of `outcome` and an error in `refusal` is set. Kept in plans as lines (TrailLines).
struct DecisionTrace {
  TraceSubject subject;
  std::string mode_why;
  DispatchMode mode = DispatchMode::kNormal;
  std::optional<OrderDecision> decision;  // unset: refused before the rules could speak
  std::vector<Adjustment> adjustments;
  std::vector<Warning> warnings;
  std::optional<DispatchOutcome> outcome;  // unset when refused
  absl::Status refusal;                    // OK when not
};

// A page for people: the outcome, the rule that decided, the rules that were overruled and why, the
// adjustments and the warnings. Lines end with '\n'. Names everything that the decision depends on,
// so that a pasted page needs no deployment beside it. No format that anything parses.
std::string ExplainText(const DecisionTrace& trace);

// The same for a plan, a line for each step that had an effect: mode, wire dtype with the rule
// that decided, each adjustment, combine dtype with bytes and flags. `trace` has an outcome. Equal
// decisions give equal lines, because the lines are part of the plan and of its hash.
std::vector<std::string> TrailLines(const DecisionTrace& trace);

}  // namespace switchyard
