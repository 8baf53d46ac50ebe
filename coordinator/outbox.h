// Collects the effects of one step and numbers the writes. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "coordinator/events.h"
#include "coordinator/store/state_store.h"
#include "core/base/log.h"

namespace switchyard {

class Outbox {
 public:
  // The effects come out in the order in which they were added.
  template <typename T>
  void Add(T effect) {
    effects_.emplace_back(std::move(effect));
  }
  // A line about something: out.OfWorker("w0").Info("joined") is "worker w0 joined", with the id as
  // a field.
  class Line {
   public:
    Line(Outbox* out, std::string about, LogFields fields)
        : out_(out), about_(std::move(about)), fields_(std::move(fields)) {}
    template <typename... Args>
    void Say(LogLevel level, const absl::FormatSpec<Args...>& format, const Args&... args) {
      out_->Add(
          Report{level, absl::StrCat(about_, " ", absl::StrFormat(format, args...)), "", fields_});
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
    Outbox* const out_;
    const std::string about_;
    const LogFields fields_;
  };
  Line OfWorker(const std::string& id) {
    return {this, absl::StrCat("worker ", id), {{"worker", id}}};
  }
  Line OfDeployment(const std::string& name) {
    return {this, absl::StrCat("deployment ", name, ":"), {{"deployment", name}}};
  }
  Line OfEpoch(const std::string& deployment, Epoch epoch) {
    return {this,
            absl::StrCat("deployment ", deployment, ": epoch ", epoch.value),
            {{"deployment", deployment}, {"epoch", epoch.value}}};
  }
  Line OfSession(const std::string& id, const std::string& deployment) {
    return {this,
            absl::StrCat("deployment ", deployment, ": session ", id),
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

 private:
  std::vector<Effect> effects_;
  std::uint64_t last_write_ = 0;
};

}  // namespace switchyard
