// The release number of this build, set by the project's CMakeLists.txt.
#pragma once

namespace switchyard {

// Peers of different releases may talk, so nothing compares it. Defined in one place: a build of
// another number compiles one file.
extern const char* const kProductVersion;

}  // namespace switchyard
