// UCX's own lines in the log of the program. By itself UCX writes to standard output, where
// programs print their results.
#pragma once

#include "core/base/log.h"

namespace switchyard {

// Writes UCX's lines to standard error in `format`, with the process "ucx". At kDebug all lines
// from UCX's level "info" up, otherwise only fatal ones: an end of a peer is an error to UCX, while
// the parts that use it report what matters of that as a Status. For the whole process; may be
// called again with another level. Thread-safe.
void WriteUcxLog(LogFormat format, LogLevel level);

}  // namespace switchyard
