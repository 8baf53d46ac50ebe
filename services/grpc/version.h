// The release of this build, from the project's CMakeLists.txt.
#pragma once

namespace switchyard {

inline constexpr char kProductVersion[] = SWITCHYARD_VERSION;

}  // namespace switchyard
