// The identities of the system: small integers, each of its own type, and random 128-bit names.
//
// An index of one kind does not convert to another, nor to an int: mixing an expert's number with
// a slot's is the bug that this header exists for. Values are plain data; thread-safe.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

template <typename Tag, typename Rep>
// `Tag` is never defined; it only keeps the types apart.
struct StrongId {
  using rep = Rep;
  Rep value{};

  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value);
  }
};

// A MoE layer's index in the model (dense layers keep their numbers, so it may skip).
using LayerId = StrongId<struct LayerTag, std::int32_t>;
// A logical expert, as the router numbers it. -1 means "no expert".
using ExpertId = StrongId<struct ExpertTag, std::int32_t>;
// A place for one physical expert on one worker, dense from 0 in each layer.
using SlotId = StrongId<struct SlotTag, std::int32_t>;
// A worker's index in one plan. Ascending order of ordinals is the order of summation.
using WorkerOrdinal = StrongId<struct WorkerOrdinalTag, std::int32_t>;
// Generation of membership + placement + configs of one deployment; grows, never reused. 0: none.
using Epoch = StrongId<struct EpochTag, std::uint64_t>;
// The pass of one batch of one session through one layer; unique and growing within the session.
using StepId = StrongId<struct StepTag, std::uint64_t>;
// An attachment's number, chosen by the process that *receives* the frames that carry it.
using AttachmentId = StrongId<struct AttachmentTag, std::uint32_t>;

// 128 random bits. Prints as 32 lower-case hex digits.
template <typename Tag>
// All zero means "none".
struct RandomId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend constexpr auto operator<=>(const RandomId&, const RandomId&) = default;
  [[nodiscard]] bool empty() const { return high == 0 && low == 0; }

  template <typename H>
  friend H AbslHashValue(H h, const RandomId& id) {
    return H::combine(std::move(h), id.high, id.low);
  }
};

// One life of one process: a restarted worker keeps its id and gets a new incarnation.
using Incarnation = RandomId<struct IncarnationTag>;
// Known to that process and to its coordinator only, while everybody may know the incarnation.
using LifeSecret = RandomId<struct LifeSecretTag>;
// Random, so that coordinators that do not know of each other never give one twice.
using SessionId = RandomId<struct SessionTag>;

// The secret of a session. Every frame carries it; frames with another one are dropped.
using Cookie = StrongId<struct CookieTag, std::uint64_t>;

// Shared by all RandomIds, so that the conversion is compiled once.
namespace internal {
std::string RandomIdToHex(std::uint64_t high, std::uint64_t low);
bool RandomIdFromHex(absl::string_view hex, std::uint64_t* high, std::uint64_t* low);
}  // namespace internal

template <typename Tag>
// The form in which ids stand in logs and texts: 32 lower-case digits.
std::string ToHex(const RandomId<Tag>& id) {
  return internal::RandomIdToHex(id.high, id.low);
}

// INVALID_ARGUMENT unless `hex` is exactly 32 hex digits.
template <typename Id>
absl::StatusOr<Id> RandomIdFromHex(absl::string_view hex) {
  Id id;
  if (!internal::RandomIdFromHex(hex, &id.high, &id.low)) {
    return absl::InvalidArgumentError("a 128-bit id is written as 32 hex digits");
  }
  return id;
}

}  // namespace switchyard
