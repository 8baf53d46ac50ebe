// A step of more tokens than a group takes at once goes in rounds, each a step of the group.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "core/moe_shape.h"
#include "core/session_messages.h"
#include "worker/device/exchange.h"
#include "worker/source/step_request.h"

namespace switchyard {

// The group's steps that one step took, numbered from 0, each of `at_once` tokens but the last.
struct StepRounds {
  std::vector<std::uint64_t> numbers;
  std::int32_t at_once = 0;
  absl::Status failed;  // of a round behind those of `numbers`

  void Begin(std::int32_t tokens_at_once) {
    numbers.clear();
    at_once = tokens_at_once;
    failed = absl::OkStatus();
  }
};

// The tokens of a dense request from `first` on, at most `at_once`.
StepRequest RoundOf(const StepRequest& request, const MoeShape& shape, OutputDtype y_dtype,
                    std::int32_t first, std::int32_t at_once);

// Whether the ids of rounds that have ended were right. `made`: the group's steps so far. Errors:
// those of Exchange::CheckIds, with the row in the whole step; kFailedPrecondition (STAGE_ORDER)
// when the device no longer knows.
absl::Status CheckRoundIds(const StepRounds& rounds, std::uint64_t made, const Exchange& exchange);

}  // namespace switchyard
