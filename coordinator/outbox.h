// Collects the effects of one step and numbers the writes; knows the wall time of the step. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "coordinator/events.h"
#include "coordinator/history/journal.h"
#include "coordinator/spec/options.h"
#include "coordinator/store/state_store.h"
#include "core/base/log.h"
#include "core/base/wall_time.h"

namespace switchyard {

// The object that a line of the log is about, and a word for what happened to it.
struct Subject {
  JournalObject object;
  const std::string& name;
  absl::string_view reason;
};
inline Subject OnDeployment(const std::string& name, absl::string_view reason) {
  return {JournalObject::kDeployment, name, reason};
}
inline Subject OnWorker(const std::string& name, absl::string_view reason) {
  return {JournalObject::kWorker, name, reason};
}

class Outbox {
 public:
  // The journal keeps as many entries.
  explicit Outbox(std::size_t journal_entries = CoordinatorOptions().journal_entries)
      : journal_(journal_entries) {}

  // The effects come out in the order in which they were added.
  template <typename T>
  void Add(T effect) {
    effects_.emplace_back(std::move(effect));
  }
  // A line for the log and an entry of the journal.
  template <typename... Args>
  void Info(const Subject& about, const absl::FormatSpec<Args...>& format, const Args&... args) {
    Note(LogLevel::kInfo, about, absl::StrFormat(format, args...));
  }
  template <typename... Args>
  void Warn(const Subject& about, const absl::FormatSpec<Args...>& format, const Args&... args) {
    Note(LogLevel::kWarn, about, absl::StrFormat(format, args...));
  }
  // A line for the log.
  template <typename... Args>
  void Info(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Add(Report{LogLevel::kInfo, absl::StrFormat(format, args...)});
  }
  template <typename... Args>
  void Warn(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Add(Report{LogLevel::kWarn, absl::StrFormat(format, args...)});
  }
  void WarnOnce(absl::string_view once, absl::string_view text) {
    Add(Report{LogLevel::kWarn, std::string(text), std::string(once)});
  }
  // Ids ascend and are never used twice, so that a late answer cannot be taken for another's.
  WriteId Write(StoreWrite change) {
    Add(WriteStore{WriteId{++last_write_}, std::move(change)});
    return WriteId{last_write_};
  }
  std::vector<Effect> Take() { return std::exchange(effects_, {}); }
  // For what people read.
  void SetWallTime(WallTime now) { wall_time_ = now; }
  [[nodiscard]] WallTime wall_time() const { return wall_time_; }
  [[nodiscard]] const Journal& journal() const { return journal_; }

 private:
  void Note(LogLevel level, const Subject& about, std::string text) {
    journal_.Add(EntryFor(level, about, text), wall_time_);
    Add(Report{level, std::move(text)});
  }
  // The message without the name of what it is about, which the entry has.
  static JournalEntry EntryFor(LogLevel level, const Subject& about, absl::string_view text) {
    JournalEntry entry;
    entry.level = level;
    entry.object = about.object;
    entry.name = about.name;
    entry.reason = std::string(about.reason);
    const bool worker = about.object == JournalObject::kWorker;
    const bool named =
        absl::ConsumePrefix(&text, absl::StrCat(worker ? "worker " : "deployment ", about.name));
    if (named && !absl::ConsumePrefix(&text, ": ")) absl::ConsumePrefix(&text, " ");
    entry.message = std::string(text);
    return entry;
  }

  std::vector<Effect> effects_;
  std::uint64_t last_write_ = 0;
  WallTime wall_time_{};
  Journal journal_;
};

}  // namespace switchyard
