// The release number of this build, set by the project's CMakeLists.txt.
#pragma once

namespace switchyard {

// GetVersion returns it; peers of different versions may talk, so nothing compares it.
inline constexpr char kProductVersion[] = SWITCHYARD_VERSION;

}  // namespace switchyard
