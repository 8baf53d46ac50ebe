// The lanes that UCX has selected for an endpoint. They are shown by `status`, and a link refuses a
// selection that contradicts its options.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include <ucp/api/ucp.h>

namespace switchyard {

// For example "tcp/lo" or "tcp/eth0,tcp/eth1"; empty if UCX prints no lanes. Parses UCX's printed
// information, because its API has no call for this. Allocates; not for the hot path.
std::string LanesOf(ucp_ep_h endpoint);
// The lanes in the output of ucp_ep_print_info. Separate for tests.
std::string ParseLanes(absl::string_view text);

}  // namespace switchyard
