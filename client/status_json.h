// Session reports and errors as JSON, for people and programs.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "client/moe_session.h"

namespace switchyard {

// {"code":"UNAVAILABLE","reason":"WORKER_LOST","message":"...","metadata":{...}}; "{}" for OK.
// Never throws: bytes that are not UTF-8 are replaced.
std::string ErrorJson(const absl::Status& status);

// One object, without secrets (cookie, addresses, rkeys).
std::string ReportJson(const SessionReport& report);

}  // namespace switchyard
