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

#include "coordinator/effects.h"
#include "coordinator/events.h"
#include "coordinator/history/journal.h"
#include "coordinator/spec/options.h"
#include "coordinator/store/state_store.h"
#include "core/base/log.h"
#include "core/base/wall_time.h"

namespace switchyard {

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
  // A line about something: out.OfWorker("w0").Info("joined") is "worker w0 joined", with the id as
  // a field. With a reason, a word for what happened, it is an entry of the journal too.
  class Line {
   public:
    Line(Outbox* out, std::string about, JournalEntry entry, LogFields fields)
        : out_(out),
          about_(std::move(about)),
          entry_(std::move(entry)),
          fields_(std::move(fields)) {}
    template <typename... Args>
    void Say(LogLevel level, const absl::FormatSpec<Args...>& format, const Args&... args) {
      out_->Note(*this, level, absl::StrFormat(format, args...));
    }
    template <typename... Args>
    void Info(const absl::FormatSpec<Args...>& format, const Args&... args) {
      Say(LogLevel::kInfo, format, args...);
    }
    template <typename... Args>
    void Warn(const absl::FormatSpec<Args...>& format, const Args&... args) {
      Say(LogLevel::kWarn, format, args...);
    }

   private:
    friend class Outbox;

    Outbox* const out_;
    const std::string about_;   // the line begins with it
    const JournalEntry entry_;  // whose message is the beginning of the message
    const LogFields fields_;
  };
  Line OfWorker(const std::string& id, absl::string_view reason = "") {
    return {this,
            absl::StrCat("worker ", id, " "),
            Entry(JournalObject::kWorker, id, reason),
            {{"worker", id}}};
  }
  Line OfDeployment(const std::string& name, absl::string_view reason = "") {
    return {this,
            absl::StrCat("deployment ", name, ": "),
            Entry(JournalObject::kDeployment, name, reason),
            {{"deployment", name}}};
  }
  Line OfEpoch(const std::string& deployment, Epoch epoch, absl::string_view reason = "") {
    return {this,
            absl::StrCat("deployment ", deployment, ": "),
            Entry(JournalObject::kDeployment, deployment, reason,
                  absl::StrCat("epoch ", epoch.value, " ")),
            {{"deployment", deployment}, {"epoch", epoch.value}}};
  }
  Line OfSession(const std::string& id, const std::string& deployment) {
    return {this,
            absl::StrCat("deployment ", deployment, ": "),
            Entry(JournalObject::kDeployment, deployment, "", absl::StrCat("session ", id, " ")),
            {{"session", id}, {"deployment", deployment}}};
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
  static JournalEntry Entry(JournalObject object, const std::string& name, absl::string_view reason,
                            std::string message = "") {
    JournalEntry entry;
    entry.object = object;
    entry.name = name;
    entry.reason = std::string(reason);
    entry.message = std::move(message);
    return entry;
  }
  void Note(const Line& line, LogLevel level, absl::string_view text) {
    JournalEntry entry = line.entry_;
    entry.level = level;
    absl::StrAppend(&entry.message, text);
    Add(Report{level, absl::StrCat(line.about_, entry.message), "", line.fields_});
    if (!entry.reason.empty()) journal_.Add(std::move(entry), wall_time_);
  }

  std::vector<Effect> effects_;
  std::uint64_t last_write_ = 0;
  WallTime wall_time_{};
  Journal journal_;
};

}  // namespace switchyard
