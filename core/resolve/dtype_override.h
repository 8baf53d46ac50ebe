// Operators' overrides of the wire dtype, for a deployment, a model, a layer or a phase.
//
// An override applies to exactly what it names, so that one layer's does not reach its neighbors.
// Pure; thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "core/dispatch_mode.h"
#include "core/format/dtype.h"
#include "core/ids.h"

namespace switchyard {

// Unset fields stand for all. An override of "auto" cancels a less specific one.
struct DtypeOverride {
  std::string model;  // empty: all models of the deployment
  std::optional<LayerId> layer;
  std::optional<Phase> phase;
  std::optional<DispatchDtype> dtype;  // nullopt: auto
  std::string source;                  // where it is written, for people
  friend bool operator==(const DtypeOverride&, const DtypeOverride&) = default;
};

// One layer of one model in one phase: what overrides are matched against.
struct OverridePlace {
  std::string model;
  LayerId layer;
  Phase phase = Phase::kMixed;
};
// The most specific override for `place`: one that names the layer beats one that does not, then
// one that names the model, then one that names the phase. nullptr: none. Lives as long as
// `overrides`. Errors: kInvalidArgument (BAD_CONFIG) when two are equally specific and differ.
absl::StatusOr<const DtypeOverride*> PickOverride(std::span<const DtypeOverride> overrides,
                                                  const OverridePlace& place);

}  // namespace switchyard
