// Names of deployments, models and workers.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace switchyard {

inline constexpr std::size_t kNameMax = 128;

// True for 1 to kNameMax characters of [A-Za-z0-9._-]. Pure.
bool IsName(absl::string_view text);

}  // namespace switchyard
