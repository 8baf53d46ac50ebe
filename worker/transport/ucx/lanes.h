// Which lanes UCX uses for an endpoint, read back for `status` and for refusing what was not asked.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include <ucp/api/ucp.h>

namespace switchyard {

// "tcp/lo" or "tcp/eth0,tcp/eth1"; empty when UCX does not say. Allocates; not for the hot path.
std::string LanesOf(ucp_ep_h endpoint);
// The lanes in what ucp_ep_print_info wrote.
std::string ParseLanes(absl::string_view text);

}  // namespace switchyard
