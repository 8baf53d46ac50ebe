// Messages as JSON for programs: the keys of the .proto files, enum values and durations as the
// configuration files write them ("low_latency", "20s"), digests in hex, 64-bit numbers as numbers.
//
// Every list is there, empty or not, and so is every number, text and flag; what is not set (a
// message, an enum) is left out. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

#include "core/base/clock.h"

namespace switchyard::ctl {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message);

// {"code", "reason", "message", "metadata"}
Json ToJson(const absl::Status& status);

// Two spaces a level and a newline at the end; bytes that are not UTF-8 become U+FFFD.
std::string Print(const Json& json);

// Seconds, as short as they are exact: "20s", "1.5s", "0.0003s".
std::string DurationText(Duration time);

}  // namespace switchyard::ctl
