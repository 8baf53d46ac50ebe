#include "core/base/log.h"

#include <array>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace switchyard {
namespace {
constexpr std::array<spdlog::level::level_enum, 5> kLevels{spdlog::level::debug,
                                                           spdlog::level::info, spdlog::level::warn,
                                                           spdlog::level::err, spdlog::level::off};
constexpr std::array<const char*, 5> kNames{"debug", "info", "warn", "error", "off"};
}  // namespace

struct Logger::Impl {
  explicit Impl(absl::string_view process)
      : logger(std::string(process), std::make_shared<spdlog::sinks::stderr_sink_mt>()) {}
  spdlog::logger logger;
};

Logger::Logger(absl::string_view process, LogLevel level)
    : level_(level), impl_(std::make_unique<Impl>(process)) {
  impl_->logger.set_level(kLevels[static_cast<std::size_t>(level)]);
  // Time, level and process: enough to merge the logs of several processes by sorting lines.
  impl_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %n] %v");
}

Logger::~Logger() = default;

void Logger::Write(LogLevel level, absl::string_view text) {
  // The text is an argument, not a format: a brace in it must not be interpreted.
  impl_->logger.log(kLevels[static_cast<std::size_t>(level)], fmt::string_view("{}"),
                    fmt::string_view(text.data(), text.size()));
  // Warnings often precede the end of the process.
  if (level >= LogLevel::kWarn) impl_->logger.flush();
}

bool LogLevelFromName(absl::string_view name, LogLevel* level) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

}  // namespace switchyard
