// Whether a page may be shown under the name in a request's Host header.
//
// A page of anybody can give its own name the address of this server, and the browser of an
// operator then sends that page's requests here ("DNS rebinding"). Such a request has that name in
// its Host header, which a page cannot change. An address as Host is no name that could point
// elsewhere.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

// True for an address of IPv4 or IPv6, localhost and names below it, and the `names`, each with or
// without a port. Letters are compared without case. Pure.
bool IsOwnHost(absl::string_view host, const std::vector<std::string>& names);

// "a.example:7701" as "a.example", "[::1]:80" as "::1". Pure.
absl::string_view WithoutPort(absl::string_view host);

}  // namespace switchyard
