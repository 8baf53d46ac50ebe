#include "core/projection.h"

namespace switchyard {

absl::string_view ProjectionName(Projection projection) {
  constexpr std::array<const char*, kAllProjections.size()> kNames{"gate_proj", "up_proj",
                                                                   "down_proj"};
  return kNames[static_cast<std::size_t>(projection)];
}

}  // namespace switchyard
