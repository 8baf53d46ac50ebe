#include "coordinator/history/journal.h"

#include <algorithm>
#include <utility>

namespace switchyard {

namespace {

// A worker may give reasons of any length.
constexpr std::size_t kMessageBytesMax = 1024;

// Not within a character of UTF-8.
void Shorten(std::string* text) {
  if (text->size() <= kMessageBytesMax) return;
  std::size_t end = kMessageBytesMax;
  while (end > 0 && (static_cast<unsigned char>((*text)[end]) & 0xc0U) == 0x80U) --end;
  text->resize(end);
  *text += "...";
}

}  // namespace

void Journal::Add(JournalEntry entry, WallTime now) {
  Shorten(&entry.message);
  entry.first = now;
  entry.last = now;
  entry.count = 1;
  entry.number = ++last_;
  const auto same = std::find_if(entries_.rbegin(), entries_.rend(), [&](const JournalEntry& one) {
    return one.object == entry.object && one.name == entry.name && one.reason == entry.reason &&
           one.message == entry.message;
  });
  if (same != entries_.rend()) {
    entry.first = same->first;
    entry.count = same->count + 1;
    entries_.erase(std::next(same).base());
  }
  entries_.push_back(std::move(entry));
  if (entries_.size() > max_) entries_.pop_front();
}

std::vector<JournalEntry> Journal::After(std::uint64_t number) const {
  const auto from = std::upper_bound(
      entries_.begin(), entries_.end(), number,
      [](std::uint64_t above, const JournalEntry& one) { return above < one.number; });
  return {from, entries_.end()};
}

}  // namespace switchyard
