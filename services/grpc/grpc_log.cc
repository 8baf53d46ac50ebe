#include "services/grpc/grpc_log.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"
#include <grpc/support/log.h>

#include "core/base/clock.h"
#include "services/grpc/line_limit.h"

namespace switchyard {
namespace {

// gRPC's log function is one for the whole process and gets nothing of ours, so that the count of
// its lines is one for the process, too. Never destroyed: threads of gRPC may write until the very
// end.
LineLimit& ErrorLimit() {
  static LineLimit* const limit = new LineLimit;
  return *limit;
}

// gRPC passes its function nothing of ours, so that the format is in its type, and a logger is made
// for each line; there are few. Its lines of level INFO are for those who look into gRPC.
template <LogFormat kFormat>
void WriteLine(gpr_log_func_args* line) {
  // A server says so of each connection to an address that its certificate does not name. Ids
  // decide who is let in, and not names (docs/adr/0022-mutual-tls.md).
  if (absl::StartsWith(line->message, "No match found for server name")) return;
  const LogLevel level =
      line->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kError : LogLevel::kDebug;
  std::uint64_t left_out = 0;
  if (level == LogLevel::kError) {
    // A stranger makes one with each connection: "Handshake failed".
    const auto admitted = ErrorLimit().Admit(line->file, line->line, SteadyClock().Now());
    if (!admitted.has_value()) return;
    left_out = *admitted;
  }
  const char* const slash = std::strrchr(line->file, '/');
  LogFields fields{{"file", slash == nullptr ? line->file : slash + 1}, {"line", line->line}};
  if (left_out > 0) fields.emplace_back("left_out", left_out);
  Logger logger("grpc", LogLevel::kDebug, kFormat);
  logger.Write(level, line->message, fields);
}

}  // namespace

void WriteGrpcLog(LogFormat format, LogLevel level) {
  gpr_set_log_function(format == LogFormat::kText ? &WriteLine<LogFormat::kText>
                                                  : &WriteLine<LogFormat::kJson>);
  // Above all severities: nothing is written.
  constexpr auto kNone = static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1);
  gpr_set_log_verbosity(level == LogLevel::kOff     ? kNone
                        : level == LogLevel::kDebug ? GPR_LOG_SEVERITY_DEBUG
                                                    : GPR_LOG_SEVERITY_ERROR);
}

}  // namespace switchyard
