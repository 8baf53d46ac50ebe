// Addresses that a worker advertises and that peers dial.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

// Why no peer on another host could dial `endpoint`, for an error's text; empty: it has the form
// "host:port" (an IPv6 host in brackets) with a port from 1 to 65535 and a host that names one
// machine, which a wildcard such as 0.0.0.0 does not. Whether anybody answers there is not checked.
std::string WhyNotDialable(absl::string_view endpoint);

}  // namespace switchyard
