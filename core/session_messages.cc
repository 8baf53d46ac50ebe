#include "core/session_messages.h"

#include <array>

namespace switchyard {
namespace {
// In the order of the enumerators.
constexpr std::array<const char*, 4> kTransportNames{"auto", "shm", "tcp", "inproc"};
}  // namespace

absl::string_view BindingName(Binding binding) {
  return binding == Binding::kP2p ? "p2p" : "gateway";
}

absl::string_view TransportChoiceName(TransportChoice choice) {
  return kTransportNames[static_cast<std::size_t>(choice)];
}

bool TransportChoiceFromName(absl::string_view name, TransportChoice* choice) {
  for (std::size_t i = 0; i < kTransportNames.size(); ++i) {
    if (name == kTransportNames[i]) {
      *choice = static_cast<TransportChoice>(i);
      return true;
    }
  }
  return false;
}

}  // namespace switchyard
