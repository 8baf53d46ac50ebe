#include "core/group_messages.h"

#include <array>
#include <cstddef>

namespace switchyard {
namespace {

// In the order of the enumerators.
constexpr std::array<const char*, 3> kBindings{"p2p", "gateway", "collective"};

}  // namespace

absl::string_view BindingName(Binding binding) {
  return kBindings[static_cast<std::size_t>(binding)];
}

}  // namespace switchyard
