#include "worker/source/p2p/stream_work.h"

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// One turn of a wait: work of a device ends by itself.
constexpr Duration kWait = std::chrono::seconds(1);

}  // namespace

StreamWork::Place& StreamWork::NextPlace() {
  // Encoding stops at kEncodesMax and a step has one sum at a time, so the ring never overflows.
  SY_CHECK(count_ < kPiecesMax, "more work on a stream than steps can have");
  return places_[(oldest_ + count_) % kPiecesMax];
}

std::span<const std::uint32_t> StreamWork::Indices(std::span<const PlannedRow> rows) {
  // Each piece has indices of its own, because the device may still read those of the piece before.
  std::vector<std::uint32_t>& tokens = NextPlace().tokens;
  tokens.clear();
  for (const PlannedRow& row : rows) tokens.push_back(row.token);
  return tokens;
}

absl::Status StreamWork::Record(const Piece& piece) {
  Place& place = NextPlace();
  // Made once for each place: a step must not allocate.
  if (place.event == nullptr) place.event = stream_->MakeEvent();
  SY_RETURN_IF_ERROR(stream_->Record(place.event.get()));
  place.piece = piece;
  ++count_;
  return absl::OkStatus();
}

std::optional<StreamWork::Ended> StreamWork::TakeEnded() {
  if (count_ == 0) return std::nullopt;
  const Place& place = places_[oldest_];
  if (!place.event->done()) return std::nullopt;
  --count_;
  // Back to the first place whenever the ring is empty: its memory is the warmest.
  oldest_ = count_ == 0 ? 0 : (oldest_ + 1) % kPiecesMax;
  return Ended{place.piece, place.event->status()};
}

void StreamWork::WaitForOldest() {
  if (count_ == 0) return;
  while (!places_[oldest_].event->Wait(kWait)) {
  }
}

}  // namespace switchyard
