// Collects the effects of one step and numbers the writes. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

 private:
  std::vector<Effect> effects_;
  std::uint64_t last_write_ = 0;
};

}  // namespace switchyard
