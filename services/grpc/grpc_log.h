// gRPC's own lines in the log of the program.
#pragma once

#include "core/base/log.h"

namespace switchyard {

// Writes gRPC's lines to standard error in `format`, with the process "grpc": its errors unless
// `level` is kOff, and at kDebug everything that it says. Of the errors of one place in gRPC's
// source only the first three in ten seconds are written; the next one counts the others
// (left_out). For the whole process; may be called again with another level. Thread-safe.
void WriteGrpcLog(LogFormat format, LogLevel level);

}  // namespace switchyard
