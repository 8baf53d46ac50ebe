// The address at which every program looks for a coordinator, and where one listens, unless the
// configuration says otherwise.
#pragma once

namespace switchyard {

inline constexpr char kDefaultCoordinator[] = "127.0.0.1:7700";

}  // namespace switchyard
