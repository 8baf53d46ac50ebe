#include "services/grpc/line_limit.h"

#include <utility>

#include "absl/hash/hash.h"

namespace switchyard {

std::optional<std::uint64_t> LineLimit::Admit(absl::string_view file, int line, TimePoint now) {
  const std::size_t index = absl::HashOf(file, line) % kPlaces;
  const MutexLock lock(mutex_);
  Place& place = places_[index];
  if (place.written == 0 || now - place.since >= kPeriod) {
    place.since = now;
    place.written = 0;
  }
  if (place.written == kLinesInPeriod) {
    ++place.left_out;
    return std::nullopt;
  }
  ++place.written;
  return std::exchange(place.left_out, 0);
}

}  // namespace switchyard
