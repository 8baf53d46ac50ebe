// Whether the workers of a plan can serve a session in lockstep, and as what group. Coordinator,
// workers and sources all compute it from the same plan, so they cannot disagree.
//
// A group runs a layer on all its devices at once, by memory that they share: one kind of device
// (R123), every layer's experts spread evenly over the workers (R45). A session that asks for more
// than a group does is refused, with the reason; p2p serves every plan. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/format/wire_format.h"
#include "core/moe_shape.h"
#include "core/plan.h"
#include "core/session_messages.h"

namespace switchyard {

// The end of the text of an error that only lockstep has.
inline constexpr char kAskForP2p[] = "; open the session with binding p2p (--transport auto)";

// The limits of a group of devices of one kind. Its kernels set them.
struct GroupLimits {
  std::int32_t tokens_max = 1024;  // of a source in a step of low_latency (R45)
  // A source has so many at once in normal mode; a step of more goes in rounds.
  std::int32_t normal_tokens_max = 1024;
  std::int32_t ranks_max = 64;
  std::int32_t experts_max = 1 << 16;  // of a worker
  std::int32_t top_k_max = 64;
  std::int32_t hidden_max = 1 << 20;
  std::int32_t hidden_unit = 1;                    // hidden is a multiple of it
  std::int64_t pairs_max = std::int64_t{1} << 30;  // ranks x tokens x top-k, in low_latency
  std::int64_t normal_pairs_max = std::int64_t{1} << 30;
  std::int32_t fp8_sums_tokens_min =
      1;  // a group whose sums are FP8 takes at least so many at once
};
inline constexpr GroupLimits kHostGroupLimits;
// The numbers of worker/device/cuda/exchange/exchange_shape.h, which checks that they are alike.
inline constexpr GroupLimits kCudaGroupLimits{.tokens_max = 256,
                                              .normal_tokens_max = 8192,
                                              .ranks_max = 8,
                                              .experts_max = 512,
                                              .top_k_max = 16,
                                              .hidden_max = 8192,
                                              .hidden_unit = 128,
                                              .pairs_max = 24576,
                                              .normal_pairs_max = 524288,
                                              .fp8_sums_tokens_min = 257};
constexpr const GroupLimits& GroupLimitsOf(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? kCudaGroupLimits : kHostGroupLimits;
}

// How a layer's rows travel to its experts.
struct LayerForm {
  LayerId layer;
  WireFormat wire;
  float global_scale = 1.0F;
  friend bool operator==(const LayerForm&, const LayerForm&) = default;
};

struct CollectiveGroup {
  MoeShape shape;
  std::int32_t workers = 0;  // ranks with experts, each as many
  // By source: that of the worker in whose process it is, or one behind the workers' of its own.
  std::vector<std::int32_t> source_ranks;
  std::int32_t tokens_max = 0;  // of a source at once
  WireFormat wire;              // of the largest rows
  // Ascending by layer. They are part of the group, so that all ranks mean the same by a step also
  // while plans change.
  std::vector<LayerForm> forms;
  DispatchDtype combine_dtype = DispatchDtype::kBf16;  // of a worker's sums: BF16 or FP8
  // Answers are rows of BF16. True: the row of each expert comes back,
  // and sums are bit-equal wherever experts are; that is what low_latency promises.
  bool row_of_each_expert = false;

  [[nodiscard]] std::int32_t ranks() const;
  // False: the source shares its worker's rank.
  [[nodiscard]] bool HasRankOf(std::int32_t source) const {
    return source_ranks.at(static_cast<std::size_t>(source)) >= workers;
  }
  friend bool operator==(const CollectiveGroup&, const CollectiveGroup&) = default;
};

// A session wants this of its group, as its grant and its joins say.
struct CollectiveDemand {
  Phase phase = Phase::kMixed;
  DispatchMode mode = DispatchMode::kNormal;
  DeviceKind source = DeviceKind::kCpu;
  std::int32_t max_tokens = 0;
  std::int32_t sources = 1;
  std::vector<std::string> hosts = {};  // as GroupRequest
  DispatchDtype combine_dtype = DispatchDtype::kBf16;
};

// CollectiveGroup::source_ranks on this plan. A source whose host is none of its workers has a rank
// of its own. REQUIRES: `hosts` is empty or has `sources` ids, no two alike.
std::vector<std::int32_t> SourceRanks(const Plan& plan, std::int32_t sources,
                                      const std::vector<std::string>& hosts);
// The workers and the sources with a rank of their own.
std::int32_t GroupRanks(const Plan& plan, std::int32_t sources,
                        const std::vector<std::string>& hosts);

// The most tokens that a source of the demanded group may have at once, which in low_latency bounds
// its steps; below 1 if the plan makes no such group. Its max_tokens is not read.
std::int32_t GroupTokensMax(const Plan& plan, const CollectiveDemand& demand);

// Errors: kInvalidArgument (BAD_CONFIG) for experts that do not divide by the workers (R45), for
// numbers of sources beyond kGroupSourcesMax, hosts that are not one for each source and no
// other's, and for sums that are neither BF16 nor, in normal mode, FP8, (TOO_MANY_TOKENS) in
// low_latency; kFailedPrecondition (UNSUPPORTED) for devices of two kinds (R123), what is beyond
// their limits, and placements that are not even.
absl::StatusOr<CollectiveGroup> ResolveCollective(const Plan& plan, const CollectiveDemand& demand);

// Where the layer's experts are: place w * experts / workers + s is slot s of worker w. Empty:
// expert e is at place e. REQUIRES: ResolveCollective of the plan has succeeded.
std::vector<std::int32_t> GroupPlaces(const Plan& plan, const LayerPlacement& layer);

}  // namespace switchyard
