// Bits per byte of a text: how well the model, with these routed experts, predicts it.
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
// How far from the expected figure a result may be, as a share of it.
inline constexpr double kEvalTolerance = 0.003;

struct EvalOptions {
  std::size_t windows = 0;  // 0: as many as the text has
  // Called after each window with the windows done and the mean so far.
  std::function<void(std::size_t done, double bits_per_byte)> progress;
};

struct EvalResult {
  std::size_t windows = 0;
  std::size_t targets = 0;
  double bits_per_byte = 0;
};

// kUnimplemented (UNSUPPORTED) unless tokens are bytes and a window fits the model's positions.
absl::Status CheckEvalModel(const DecoderDims& dims);

// Windows in a text of `bytes`: each needs its 512 bytes and one more.
std::size_t EvalWindowsIn(std::size_t bytes);

// Errors: kInvalidArgument (BAD_REQUEST) for a text too short; kUnimplemented (UNSUPPORTED) for a
// model whose tokens are not bytes or that takes less than a window; those of Decoder::Forward;
// kInternal when a probability is not a number.
absl::StatusOr<EvalResult> Evaluate(const Decoder& decoder, const MoePath& moe,
                                    absl::string_view text, const EvalOptions& options);

// Within kEvalTolerance of `expected`. False for NaN.
bool MeetsExpectation(double bits_per_byte, double expected);

}  // namespace switchyard::qwen3_moe
