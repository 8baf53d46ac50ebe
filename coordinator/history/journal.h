// The journal: a bounded list of what happened lately to workers, deployments and epochs, as the
// log says it, for operators.
//
// An entry that says the same as one that is still there takes its place, as the newest, and counts
// how often it was said: a deployment that waits for workers must not push everything else out. Not
// stored. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/log.h"
#include "core/base/wall_time.h"

namespace switchyard {

enum class JournalObject : std::uint8_t { kDeployment = 0, kWorker = 1 };

struct JournalEntry {
  // Counts the entries; one that is repeated gets the next number.
  std::uint64_t number = 0;
  WallTime first{};
  WallTime last{};
  std::int32_t count = 1;
  LogLevel level = LogLevel::kInfo;
  JournalObject object = JournalObject::kDeployment;
  std::string name;     // of the object
  std::string reason;   // "EpochServing"; a word for programs
  std::string message;  // for people
};

class Journal {
 public:
  // Keeps the newest `max` entries.
  explicit Journal(std::size_t max) : max_(max) {}

  // Number, times and count are the journal's.
  void Add(JournalEntry entry, WallTime now);
  // Those with a number above `number`, ascending.
  [[nodiscard]] std::vector<JournalEntry> After(std::uint64_t number) const;

 private:
  std::size_t max_;
  std::uint64_t last_ = 0;
  std::deque<JournalEntry> entries_;  // ascending by number
};

}  // namespace switchyard
