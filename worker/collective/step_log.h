// The order of the steps of all groups that the same workers serve: a queue in memory that their
// processes share. Whoever has tokens appends a step; every rank of the step's group then makes it,
// in the order of the log.
//
// One order for all groups, because a rank's kernels wait for those of the others: two groups whose
// steps begin in another order on two devices would wait for each other until both give up.
//
// A step is one word, so that appending is one compare-and-swap: a process that dies leaves nothing
// half written. Each participant that has to make every step (a worker) has a place where it says
// how far it has come; nobody appends a step that would replace one that is still to be made.
// A participant that stands in the way and has been silent for kSilentMax, because its process was
// killed or stopped, loses its place; it hears of that when it goes on.
//
// The memory may be written by any process that was given it. What is read from it is data: users
// check groups, layers and epochs as they check a message. Thread-safe; nothing allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/ids.h"

namespace switchyard {

// A step of one group as the log has it. Equal for all ranks.
struct LoggedStep {
  static constexpr std::uint32_t kGroupsMax = 256;
  static constexpr std::int32_t kLayersMax = 1 << 13;
  static constexpr std::int32_t kCoverMax = 1 << 13;
  // In place of a layer: as many steps as `cover` says, which every rank makes by a graph of its
  // engine. No model has so many layers.
  static constexpr LayerId kLaunch{kLayersMax - 1};
  static constexpr std::uint64_t kEpochMask = (1U << 16) - 1;

  std::uint32_t group = 0;  // its number at the workers
  LayerId layer;
  std::int32_t cover = 1;   // ExchangeStep::cover, from 1
  std::uint64_t epoch = 0;  // the epoch's last bits, kEpochMask

  [[nodiscard]] bool Is(Epoch of) const { return (of.value & kEpochMask) == epoch; }
  [[nodiscard]] bool is_launch() const { return layer == kLaunch; }
  // Whether a source that wants that step of its group can take part in this one with its tokens.
  [[nodiscard]] bool Serves(const LoggedStep& wanted, std::int32_t tokens) const {
    return group == wanted.group && layer == wanted.layer && epoch == wanted.epoch &&
           cover >= tokens;
  }
  friend bool operator==(const LoggedStep&, const LoggedStep&) = default;
};

class StepLog {
 public:
  static constexpr std::uint32_t kSteps = 4096;  // at most so many between the last and the slowest
  static constexpr std::uint32_t kPlacesMax = 64;
  static constexpr std::uint32_t kNoPlace = kPlacesMax;
  static constexpr std::uint32_t kNoGroup = LoggedStep::kGroupsMax;
  static constexpr Duration kSilentMax = std::chrono::seconds(1);
  // Whoever looks at a number so often that is neither there nor free reads what no participant has
  // written: Unreadable.
  static constexpr int kAttemptsMax = 1 << 16;
  // So often at least, a participant calls Keep.
  static constexpr Duration kKeepEvery = std::chrono::milliseconds(100);

  // A participant's place. `owner` tells it from those that have it before and after.
  struct Place {
    std::uint32_t number = kNoPlace;
    std::uint64_t owner = 0;
  };
  static std::size_t Bytes();
  // It is that of words and memory; another release may have another one.
  static constexpr std::uint32_t kLayout = 4;

  static absl::Status Unreadable();

  StepLog() = default;
  // An empty log in `memory`, zeroed, Bytes() at a multiple of 64. The memory outlives all views.
  static StepLog Make(std::span<std::byte> memory);
  // The log that Make has put there.
  static StepLog View(std::span<std::byte> memory);

  [[nodiscard]] std::uint32_t layout() const;
  // The number of the step that is appended next, or of a later one.
  [[nodiscard]] std::uint64_t end() const;
  // Step `number`; nullopt while it is not appended, and when it was replaced since.
  [[nodiscard]] std::optional<LoggedStep> At(std::uint64_t number) const;
  enum class Appended : std::uint8_t { kYes, kTaken, kFull };
  // kTaken: another step has this number; look at it and try the next. kFull: a participant is
  // kSteps behind. REQUIRES: no field above its bound.
  Appended Append(std::uint64_t number, const LoggedStep& step);

  // Waits until step `number` is there, at most `timeout`, first spinning for `spin`. False: it is
  // not.
  bool WaitFor(std::uint64_t number, Duration spin, Duration timeout) const;
  // Ends all waits, now.
  void WakeAll() const;

  // A place for a participant that makes all steps from `from` on; kNoPlace: none is free.
  Place Enter(std::uint64_t from);
  void Leave(const Place& place);
  // It has made all steps before `number`, and looks at them no more.
  void Done(const Place& place, std::uint64_t number);
  // Done, and a sign of life. False: it has lost its place, and steps that it has not made may be
  // gone.
  bool Keep(const Place& place, std::uint64_t number);

  // A number for a group (LoggedStep::group): nobody else gets it until it is given back, or the
  // place is gone. Numbers come around late, so that no step of a group before is taken for one of
  // this group. kNoGroup: all are taken, or the place is gone.
  std::uint32_t TakeGroup(const Place& place);
  void GiveGroup(const Place& place, std::uint32_t group);

 private:
  struct Memory;
  // Frees places of silent participants, of those that have not made all steps before `number`.
  bool FreeSilent(std::uint64_t number);
  [[nodiscard]] bool Has(std::uint64_t owner) const;
  explicit StepLog(Memory* shared) : shared_(shared) {}

  Memory* shared_ = nullptr;
};

}  // namespace switchyard
