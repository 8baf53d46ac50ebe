// What a coordinator was set to about wire dtypes: where a deployment says nothing itself, this
// counts. It is stamped on every deployment that is applied and stored with it, so that a plan does
// not change because a coordinator came back with another environment.
//
// Two deprecated environment variables are part of it. They are looked up once, at the start of the
// coordinator's process, and are data from there on; no other process knows them. Pure;
// thread-safe.
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

struct DispatchDefaults {
  DtypeChoice dispatcher_output_dtype = DtypeChoice::kAuto;
  std::string bf16_dispatch_flag = {};    // who set kBf16Variable; empty: nobody
  std::string npu_normal_int8_flag = {};  // who set kNpuInt8Variable; empty: nobody

  // As the resolver takes them.
  [[nodiscard]] DeprecatedFlags Flags() const;
  friend bool operator==(const DispatchDefaults&, const DispatchDefaults&) = default;
};

// The value of an environment variable; nullopt: it is not set.
using EnvironmentLookup = absl::FunctionRef<std::optional<std::string>(const char* name)>;

// The coordinator's options as they were written; nullopt: not written.
struct DispatchOptions {
  std::optional<std::string> dispatcher_output_dtype = {};         // kDtypeFlag
  std::optional<std::string> deepep_dispatcher_output_dtype = {};  // kDeprecatedDtypeFlag
};

struct ReadDispatchDefaults {
  DispatchDefaults defaults;
  std::vector<Warning> warnings;  // one for each deprecated way that was used
};

// Looks up kBf16Variable and kNpuInt8Variable, each once. A variable means yes by 1, true, yes or
// y, no by 0, false, no, n or nothing, in any case (source: SGLang's EnvBool); "no" is as not set.
// Errors: kInvalidArgument (BAD_CONFIG) for any other value of a variable, for a choice that is no
// wire dtype, and for an option that is written in both spellings.
absl::StatusOr<ReadDispatchDefaults> MakeDispatchDefaults(EnvironmentLookup environment,
                                                          const DispatchOptions& options);

// Whether `name`, an option as it stands on a command line, perhaps with "=value", is a misspelt
// name of the option. Errors: kInvalidArgument (BAD_CONFIG) naming the right one.
absl::Status CheckOptionName(absl::string_view name);

}  // namespace switchyard
