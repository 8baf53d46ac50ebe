// Measures bits per byte of a text: how well the model predicts it with the given routed experts.
//
// Window i feeds bytes 512i .. 512i+511 in a new context and scores the prediction of bytes
// 512i+1 .. 512i+512; the result is the mean of -log2 p(target) over all targets.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"

namespace switchyard::qwen3_moe {

inline constexpr std::size_t kEvalWindow = 512;
// The largest accepted difference from an expected figure, as a share of it.
inline constexpr double kEvalTolerance = 0.003;

struct EvalOptions {
  std::size_t windows = 0;  // 0: all windows of the text
  // Called after each window with the number of windows and the mean so far.
  std::function<void(std::size_t done, double bits_per_byte)> progress;
};

// The figure over all windows that were measured.
struct EvalResult {
  std::size_t windows = 0;
  std::size_t targets = 0;
  double bits_per_byte = 0;
};

// kUnimplemented (UNSUPPORTED) unless tokens are bytes and the model has positions for a window.
absl::Status CheckEvalModel(const DecoderDims& dims);

// The number of windows in a text of `bytes`. A window needs 512 bytes and the one after them,
// which is the last target.
std::size_t EvalWindowsIn(std::size_t bytes);

// Errors: kInvalidArgument (BAD_REQUEST) if the text is too short; those of CheckEvalModel and
// Decoder::Forward; kInternal if a probability is not a number.
absl::StatusOr<EvalResult> Evaluate(const Decoder& decoder, const MoePath& moe,
                                    absl::string_view text, const EvalOptions& options);

// Whether the figure is within kEvalTolerance of `expected`. False for NaN.
bool MeetsExpectation(double bits_per_byte, double expected);

}  // namespace switchyard::qwen3_moe
