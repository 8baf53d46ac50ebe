// Reads configuration files: YAML (JSON is YAML) whose keys are the fields of a proto message.
//
// The reader is strict, because a misspelled key that is ignored would silently change how a
// deployment is served. It refuses unknown keys, values of the wrong kind or out of range, and
// duplicate or empty keys. The error has the file, line and path and, for an unknown key, the
// nearest known one:
//
//   deployment.yaml:7: phases[0].mdoe: no such key; did you mean "mode"? (known: phase, mode)
//
// Values: numbers in decimal; true and false; enum values in lower case without their prefix
// ("low_latency"); durations with a unit (h, m, s, ms, us), as "20s" or "1.5s". Errors:
// kInvalidArgument (BAD_CONFIG) with metadata file, line and field; kNotFound (BAD_CONFIG) if the
// file cannot be read. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

// Whether errors may repeat what is in the file: unknown keys and wrong values. Where they may not,
// they have the line, and a path of known keys.
enum class ConfigWords : std::uint8_t { kShown, kSecret };

// Fills `message`, which must be empty, from the only document in `text`. Errors name `file`.
absl::Status ReadConfigText(const std::string& text, const std::string& file,
                            google::protobuf::Message* message,
                            ConfigWords words = ConfigWords::kShown);

// Reads one or more documents, separated by "---", each with a name of its own. `path` may be
// kStdin (services/config/yaml_text.h). A relative checkpoint is resolved against the file's folder
// and refused in standard input.
absl::StatusOr<std::vector<v1::DeploymentSpec>> ReadDeployments(const std::string& path);

// A variable of this process's environment; nullopt if it is not set. This is the only place that
// reads the environment. Only main functions call it and pass the value on as an option, so that
// libraries behave the same in every process.
std::optional<std::string> EnvironmentVariable(const char* name);

}  // namespace switchyard
