// Why rows of one layer travel as they do: every rule that was asked, what changed its answer
// afterwards, what has to be said, and what came out or why nothing did. Plain data.
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

enum class LayerRole : std::uint8_t { kBase = 0, kDraft = 1 };

// After the order has spoken, in the order in which they apply.
enum class AdjustmentId : std::uint8_t {
  kUnquantizedLayer = 0,  // its experts take BF16 alone
  kNvfp4Normal = 1,       // normal mode sends NVFP4 layers BF16
  kHardware = 2,          // the device takes another dtype in its place
  kNormalRanks = 3,       // no quantized rows in normal mode with so many ranks
  kCapability = 4,        // one end did not prove that it can
};
absl::string_view AdjustmentName(AdjustmentId id);  // "unquantized_layer", ...

struct Adjustment {
  AdjustmentId id = AdjustmentId::kHardware;
  DispatchDtype from = DispatchDtype::kBf16;
  DispatchDtype to = DispatchDtype::kBf16;
  std::string why;
};

// To be told once a process and id, not once a layer: see core/base/once_set.h.
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

struct Warning {
  WarningId id = WarningId::kFp8ToInt8;
  std::string text;
};

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

struct DispatchOutcome {
  DispatchMode mode = DispatchMode::kNormal;
  WireFormat format;
  DispatchDtype combine_dtype = DispatchDtype::kBf16;  // always
  bool use_fp8 = false;    // FP8, or INT8: what SGLang's dispatcher calls so
  bool use_nvfp4 = false;  // NVFP4
  bool graphs = false;     // steps can be captured into a graph and replayed
  RowBytes wire;           // of one row on the way to the experts
  std::int64_t combine_row_bytes = 0;
  StagingBytes staging;  // of one step or chunk

  [[nodiscard]] DispatchDtype dtype() const { return format.dtype; }
};

struct DecisionTrace {
  TraceSubject subject;
  OrderVariant order = OrderVariant::kMerged;
  std::string mode_why;
  DispatchMode mode = DispatchMode::kNormal;
  std::optional<OrderDecision> decision;  // unset: refused before the rules could speak
  std::vector<Adjustment> adjustments;
  std::vector<Warning> warnings;
  std::optional<DispatchOutcome> outcome;  // unset when refused
  absl::Status refusal;                    // OK when not
};

// A page for people: what came out, who decided, who was overruled and why, what changed it, what
// to know. Lines end with '\n'.
std::string ExplainText(const DecisionTrace& trace);

// The same in a line for each step that had an effect, for a plan: mode, wire dtype with the rule
// that decided, each adjustment, combine dtype with bytes and flags. `trace` has an outcome.
std::vector<std::string> TrailLines(const DecisionTrace& trace);

}  // namespace switchyard
