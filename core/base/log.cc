#include "core/base/log.h"

#include <array>
#include <unistd.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace switchyard {
namespace {

constexpr std::array<const char*, 5> kNames{"debug", "info", "warn", "error", "off"};
constexpr std::array<const char*, 3> kFormats{"auto", "text", "json"};

LogFormat Chosen(LogFormat format) {
  if (format != LogFormat::kAuto) return format;
  return isatty(STDERR_FILENO) != 0 ? LogFormat::kText : LogFormat::kJson;
}

template <typename Names>
int IndexOf(const Names& names, absl::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

struct Logger::Impl {
  Impl() : logger("", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {}
  spdlog::logger logger;
};

Logger::Logger(absl::string_view process, LogLevel level, LogFormat format)
    : process_(process), format_(Chosen(format)), level_(level), impl_(std::make_unique<Impl>()) {
  impl_->logger.set_level(spdlog::level::trace);  // this class decides
  BeginLinesWith("");
}

void Logger::BeginLinesWith(absl::string_view control) {
  // RFC 3339 with the offset, so that the logs of machines in several zones merge by sorting.
  const char* const pattern = format_ == LogFormat::kText ? "%Y-%m-%dT%H:%M:%S.%e%z %v"
                                                          : R"({"ts":"%Y-%m-%dT%H:%M:%S.%e%z",%v})";
  impl_->logger.set_pattern(std::string(control) + pattern);
}

Logger::~Logger() = default;

void Logger::Write(LogLevel level, absl::string_view text, const LogFields& fields) {
  if (!Enabled(level)) return;
  const LogLine line{LogLevelName(level), process_, text, fields};
  const std::string out = format_ == LogFormat::kText ? TextLine(line) : JsonMembers(line);
  // The text is an argument, not a format: a brace in it must not be interpreted.
  impl_->logger.log(spdlog::level::info, fmt::string_view("{}"), fmt::string_view(out));
  // Warnings often precede the end of the process.
  if (level >= LogLevel::kWarn) impl_->logger.flush();
}

void Logger::WriteLast(absl::string_view text, const LogFields& fields) {
  SetLevel(LogLevel::kError);
  Write(LogLevel::kError, text, fields);
}

bool LogLevelFromName(absl::string_view name, LogLevel* level) {
  const int index = IndexOf(kNames, name);
  if (index >= 0) *level = static_cast<LogLevel>(index);
  return index >= 0;
}

absl::string_view LogLevelName(LogLevel level) { return kNames[static_cast<std::size_t>(level)]; }

bool LogFormatFromName(absl::string_view name, LogFormat* format) {
  const int index = IndexOf(kFormats, name);
  if (index >= 0) *format = static_cast<LogFormat>(index);
  return index >= 0;
}

}  // namespace switchyard
