// The coordinator's own settings of wire dtypes, which apply where a deployment has none. They are
// copied into every deployment that is applied and stored with it, so that no plan changes because
// a coordinator restarted with another environment.
//
// Two deprecated environment variables are part of them. They are read once, when the coordinator's
// process starts, and are data from then on; no other process reads them. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "core/resolve/decision_trace.h"
#include "core/resolve/dtype_option.h"
#include "core/resolve/dtype_order.h"

namespace switchyard {

// Part of a stored record, so that its fields may be added to but not changed.
struct DispatchDefaults {
  DtypeChoice dispatcher_output_dtype = DtypeChoice::kAuto;
  // Where kBf16Variable is set; empty: it is not.
  std::string bf16_dispatch_flag = {};
  // Where kNpuInt8Variable is set; empty: it is not.
  std::string npu_normal_int8_flag = {};

  // In the resolver's form.
  [[nodiscard]] DeprecatedFlags Flags() const;
  friend bool operator==(const DispatchDefaults&, const DispatchDefaults&) = default;
};

// Returns the value of an environment variable; nullopt: it is not set.
using EnvironmentLookup = absl::FunctionRef<std::optional<std::string>(const char* name)>;

// The coordinator's options as they were given; nullopt: not given.
struct DispatchOptions {
  std::optional<std::string> dispatcher_output_dtype = {};         // kDtypeFlag
  std::optional<std::string> deepep_dispatcher_output_dtype = {};  // kDeprecatedDtypeFlag
};

struct ReadDispatchDefaults {
  DispatchDefaults defaults;
  // One for each deprecated option or variable in use.
  std::vector<Warning> warnings;
};

// Looks up kBf16Variable and kNpuInt8Variable, each once. 1, true, yes and y mean yes; 0, false,
// no, n and the empty string mean no, in upper or lower case (as SGLang's EnvBool); "no" is the
// same as not set. Errors: kInvalidArgument (BAD_CONFIG) for any other value of a variable, for a
// choice that is not a wire dtype, and for an option that is given in both spellings.
absl::StatusOr<ReadDispatchDefaults> MakeDispatchDefaults(EnvironmentLookup environment,
                                                          const DispatchOptions& options);

// Catches misspellings of the option on a command line; `name` may end in "=value". Errors:
// kInvalidArgument (BAD_CONFIG) naming the right spelling.
absl::Status CheckOptionName(absl::string_view name);

}  // namespace switchyard
