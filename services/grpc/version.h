// The release number of this build, set by the project's CMakeLists.txt.
#pragma once

namespace switchyard {

inline constexpr char kProductVersion[] = SWITCHYARD_VERSION;

}  // namespace switchyard
