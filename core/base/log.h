// Logging for cold paths: one line for each fact, to standard error.
//
// The hot path never logs, and secrets (cookies, addresses, rkeys, tensor contents) are never
// logged. main makes a Logger and passes it down; there is no global one. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "core/base/log_line.h"

namespace switchyard {

// kOff is a level for configurations only; no line has it.
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };

// kAuto: text if standard error is a terminal, where people read it, and JSON if it is not.
enum class LogFormat : std::uint8_t { kAuto, kText, kJson };

class Logger {
 public:
  // `process` stands in every line, e.g. "worker w0". Lines below `level` are dropped.
  Logger(absl::string_view process, LogLevel level, LogFormat format = LogFormat::kAuto);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // Writes the line with time, level, process and fields. Lines of several threads do not mix.
  // Flushes from kWarn up, because such lines often precede the end of the process.
  void Write(LogLevel level, absl::string_view text, const LogFields& fields = {});
  // Writes a line of kError at any level, for the reason why the process ends.
  void WriteLast(absl::string_view text, const LogFields& fields = {});

  // Formats only if the level is enabled, so a debug line costs a comparison in production.
  template <typename... Args>
  void Debug(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (Enabled(LogLevel::kDebug)) Write(LogLevel::kDebug, absl::StrFormat(format, args...));
  }
  template <typename... Args>
  void Info(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (Enabled(LogLevel::kInfo)) Write(LogLevel::kInfo, absl::StrFormat(format, args...));
  }
  template <typename... Args>
  void Warn(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (Enabled(LogLevel::kWarn)) Write(LogLevel::kWarn, absl::StrFormat(format, args...));
  }
  template <typename... Args>
  void Error(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (Enabled(LogLevel::kError)) Write(LogLevel::kError, absl::StrFormat(format, args...));
  }

  // For callers that would have to collect the facts of a line first.
  [[nodiscard]] bool Enabled(LogLevel level) const { return level >= level_.load(); }
  // Lines that are being written keep the level that was.
  void SetLevel(LogLevel level) { level_.store(level); }

  // Puts `control` before each later line: what erases a line that something else has drawn.
  void BeginLinesWith(absl::string_view control);

  // Never kAuto.
  [[nodiscard]] LogFormat format() const { return format_; }

 private:
  // Hides the logging library, which no other file includes.
  struct Impl;
  const std::string process_;
  const LogFormat format_;
  std::atomic<LogLevel> level_;
  std::unique_ptr<Impl> impl_;
};

// "debug", "info", "warn", "error", "off"; false for anything else.
bool LogLevelFromName(absl::string_view name, LogLevel* level);
absl::string_view LogLevelName(LogLevel level);
// "auto", "text", "json"; false for anything else.
bool LogFormatFromName(absl::string_view name, LogFormat* format);

}  // namespace switchyard
