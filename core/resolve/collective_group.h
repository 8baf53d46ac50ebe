// Whether the workers of a plan can serve a session in lockstep, and as what group. Coordinator,
// workers and sources all compute it from the same plan, so they cannot disagree.
//
// A group runs a layer on all its devices at once, by memory that they share: one kind of device
// (R123), every layer's experts spread evenly and in order over the workers (R45), one format of
// rows in all layers. A session that asks for more than a group does is refused, with the reason;
// p2p serves every plan. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "core/format/wire_format.h"
#include "core/moe_shape.h"
#include "core/plan.h"
#include "core/session_messages.h"

namespace switchyard {

// R45: the most tokens of a source in one step of a group.
inline constexpr std::int32_t kGroupTokensMax = 1024;

struct CollectiveGroup {
  MoeShape shape;
  std::int32_t workers = 0;  // ranks with experts; worker w has those from w * experts / workers on
  std::int32_t sources = 0;  // further ranks
  std::int32_t tokens_max = 0;
  WireFormat wire;
  // The dtype in which a worker's rows come back is BF16. True: the row of each expert comes back,
  // and sums are bit-equal wherever experts are; that is what low_latency promises.
  bool row_of_each_expert = false;

  friend bool operator==(const CollectiveGroup&, const CollectiveGroup&) = default;
};

// A session wants this of its group, as its grant and its joins say.
struct CollectiveDemand {
  Phase phase = Phase::kMixed;
  DispatchMode mode = DispatchMode::kNormal;
  DeviceKind source = DeviceKind::kCpu;
  std::int32_t max_tokens = 0;
  std::int32_t sources = 1;
};

// Errors: kInvalidArgument (BAD_CONFIG) for experts that do not divide by the workers (R45) and for
// numbers of sources beyond kGroupSourcesMax, (TOO_MANY_TOKENS); kFailedPrecondition (UNSUPPORTED)
// for devices of two kinds (R123), placements that are not in order, and layers of two formats.
absl::StatusOr<CollectiveGroup> ResolveCollective(const Plan& plan, const CollectiveDemand& demand);

}  // namespace switchyard
