// Files that people write: YAML (JSON is YAML) whose keys are the fields of a proto message.
//
// Strict: an unknown key, a value of the wrong kind or out of range, a key given twice or left
// empty is refused with file, line and path, an unknown key with the nearest known one:
//
//   deployment.yaml:7: phases[0].mdoe: no such key; did you mean "mode"? (known: phase, mode)
//
// Values: numbers in decimal; true and false; enum values in lower case without their prefix
// ("low_latency"); durations with a unit (h, m, s, ms, us), as "20s" or "1.5s". Errors:
// kInvalidArgument (BAD_CONFIG) with metadata file, line and field; kNotFound (BAD_CONFIG) when the
// file cannot be read. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

#include "switchyard/v1/config.pb.h"

namespace switchyard {

// Fills `message`, which is empty, from the one document in `text`; `file` names it in errors.
absl::Status ReadConfigText(const std::string& text, const std::string& file,
                            google::protobuf::Message* message);

absl::StatusOr<v1::CoordinatorConfig> ReadCoordinatorConfig(const std::string& path);
// One or more documents, separated by "---".
absl::StatusOr<std::vector<v1::DeploymentSpec>> ReadDeployments(const std::string& path);

// A variable of this process's environment; nullopt: it is not set. Nothing else reads the
// environment, and only main calls this: what it finds is passed on as an option.
std::optional<std::string> EnvironmentVariable(const char* name);

}  // namespace switchyard
