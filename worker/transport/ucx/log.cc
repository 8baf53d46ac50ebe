#include "worker/transport/ucx/log.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>

namespace switchyard {
namespace {

LogLevel LevelOf(ucs_log_level_t level) {
  if (level <= UCS_LOG_LEVEL_ERROR) return LogLevel::kError;
  return level == UCS_LOG_LEVEL_WARN ? LogLevel::kWarn : LogLevel::kDebug;
}

// UCX passes a handler nothing of ours, so that the format is in its type, and a logger is made for
// each line; there are few.
template <LogFormat kFormat>
ucs_log_func_rc_t WriteLine(const char* file, unsigned line, const char* /*function*/,
                            ucs_log_level_t level, const ucs_log_component_config_t* /*component*/,
                            const char* message, va_list arguments) {
  std::array<char, 1024> text{};
  std::vsnprintf(text.data(), text.size(), message, arguments);
  const char* const slash = std::strrchr(file, '/');
  Logger logger("ucx", LogLevel::kDebug, kFormat);
  logger.Write(LevelOf(level), text.data(),
               {{"file", slash == nullptr ? file : slash + 1}, {"line", line}});
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void WriteUcxLog(LogFormat format, LogLevel level) {
  // The newest handler is asked first and stops the others. UCX has room for few.
  if (ucs_log_num_handlers() > 1) ucs_log_pop_handler();
  ucs_log_push_handler(format == LogFormat::kText ? &WriteLine<LogFormat::kText>
                                                  : &WriteLine<LogFormat::kJson>);
  ucs_global_opts_set_value("LOG_LEVEL", level == LogLevel::kDebug ? "info" : "fatal");
}

}  // namespace switchyard
