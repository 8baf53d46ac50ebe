// The work that a step engine has given to the stream of its device, oldest first.
//
//   stream->Encode(..., Indices(rows)) or stream->Sum, then Record ... TakeEnded ... -> nullopt
//
// A stream runs its work in order, so the oldest event tells whether anything has ended. A device
// that works in the call, as the cpu does for a source, has ended it when Record returns.
// Memory is reused from piece to piece. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "worker/device/stream.h"
#include "worker/routing/dispatch_plan.h"
#include "worker/source/p2p/step.h"

namespace switchyard {

class StreamWork {
 public:
  enum class Kind : std::uint8_t { kFrame, kOwnChunk, kSum };
  // A piece of work of `step`, which lives until the piece was taken.
  struct Piece {
    Kind kind = Kind::kFrame;
    Step* step = nullptr;
    std::uint32_t chunk = 0;  // kFrame, kOwnChunk
    TimePoint started{};
  };
  struct Ended {
    Piece piece;
    absl::Status status;
  };

  // Pieces that may be with the device at once; each is two entries of the stream's queue. Encoding
  // leaves room for one sum of each step.
  static constexpr std::size_t kPiecesMax = 31;
  static constexpr std::size_t kEncodesMax = 15;

  // `stream` outlives this object, and every piece is taken before it ends. Null: there is none,
  // and never a piece.
  explicit StreamWork(Stream* stream) : stream_(stream) {}

  [[nodiscard]] Stream& stream() const { return *stream_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool has_room_for_encode() const { return count_ < kEncodesMax; }

  // The token of each row, for the piece that is recorded next. Unchanged until that has ended.
  std::span<const std::uint32_t> Indices(std::span<const PlannedRow> rows);
  // `piece` is what the stream was given last. Errors: those of Stream::Record.
  absl::Status Record(const Piece& piece);
  // The oldest piece, if it has ended; it is forgotten here.
  std::optional<Ended> TakeEnded();
  // Blocks until the oldest piece has ended. For what takes memory away from the device at once: a
  // link or a session that closes. Never for a step.
  void WaitForOldest();

 private:
  struct Place {
    Piece piece;
    std::vector<std::uint32_t> tokens;  // of each row; the device reads it
    std::unique_ptr<DeviceEvent> event;
  };
  Place& NextPlace();

  Stream* const stream_;
  // A ring. It begins at the first place again whenever it is empty, so that a device that works in
  // the call uses one place.
  std::array<Place, kPiecesMax> places_;
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
};

}  // namespace switchyard
