// Converts messages to JSON for programs. Keys are those of the .proto files, enum values and
// durations are written as in configuration files ("low_latency", "20s"), times as in RFC 3339 and
// UTC, digests are hex, and 64-bit numbers are numbers (protobuf's own JSON makes them strings).
//
// Every list, number, text and flag is present, even if it is empty or zero, so that scripts need
// no defaults. Messages and enums that are not set are omitted. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"
#include "nlohmann/json_fwd.hpp"

#include "core/base/clock.h"

namespace switchyard::ctl {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message);

// {"code", "reason", "message", "metadata"}
Json ToJson(const absl::Status& status);

// Indents by two spaces and ends with a newline. Bytes that are not UTF-8 become U+FFFD.
std::string Print(const Json& json);

// The exact number of seconds without trailing zeros: "20s", "1.5s", "0.0003s".
std::string DurationText(Duration time);
// "2026-11-26T07:00:00.123Z".
std::string TimeText(const google::protobuf::Timestamp& time);

}  // namespace switchyard::ctl
