#include "worker/collective/step_log.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <limits>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

#include "core/base/check.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kFree = std::numeric_limits<std::uint64_t>::max();

// lap 14 | group 8 | layer 13 | cover - 1 13 | epoch 16. Lap 0 is that of memory without a step.
constexpr int kEpochBits = 16;
constexpr int kCoverBits = 13;
constexpr int kLayerBits = 13;
constexpr int kGroupBits = 8;
constexpr std::uint64_t kLaps = (1U << 14) - 1;

std::uint64_t LapOf(std::uint64_t number) { return number / StepLog::kSteps % kLaps + 1; }

std::uint64_t WordOf(std::uint64_t number, const LoggedStep& step) {
  std::uint64_t word = LapOf(number);
  word = word << kGroupBits | step.group;
  word = word << kLayerBits | static_cast<std::uint64_t>(step.layer.value);
  word = word << kCoverBits | static_cast<std::uint64_t>(step.cover - 1);
  return word << kEpochBits | (step.epoch & LoggedStep::kEpochMask);
}

std::uint64_t Take(std::uint64_t* word, int bits) {
  const std::uint64_t taken = *word & ((std::uint64_t{1} << bits) - 1);
  *word >>= bits;
  return taken;
}

std::int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

struct StepLog::Memory {
  alignas(64) std::uint32_t layout;  // a line that logs before it had not: their size differs
  alignas(64) std::atomic<std::uint64_t> end;  // all steps before it are there
  alignas(64) std::atomic<std::uint32_t> bell;
  // Somebody may sleep. Whoever wakes all takes it back, so that a process that was killed in its
  // sleep costs the others one call to the system, not one for each step.
  std::atomic<std::uint32_t> asleep;
  struct Place {
    alignas(64) std::atomic<std::uint64_t> done;  // kFree: nobody's
    std::atomic<std::uint64_t> owner;             // 0: nobody's
    std::atomic<std::int64_t> heard_ns;           // by the host's steady clock
  };
  Place places[kPlacesMax];
  std::atomic<std::uint64_t> owners;  // given so far
  std::atomic<std::uint32_t> next_group;
  std::atomic<std::uint64_t> groups[LoggedStep::kGroupsMax];  // the owner of each; 0: nobody
  alignas(64) std::atomic<std::uint64_t> steps[kSteps];
};

absl::Status StepLog::Unreadable() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   "the log of the group's steps holds what none of its participants has written");
}

std::size_t StepLog::Bytes() { return sizeof(Memory); }

StepLog StepLog::Make(std::span<std::byte> memory) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
  SY_CHECK(memory.size() >= sizeof(Memory), "memory of a log");
  auto* const shared = new (memory.data()) Memory{};
  for (Memory::Place& place : shared->places) place.done.store(kFree);
  shared->layout = kLayout;
  return StepLog(shared);
}

StepLog StepLog::View(std::span<std::byte> memory) {
  SY_CHECK(memory.size() >= sizeof(Memory), "memory of a log");
  return StepLog(reinterpret_cast<Memory*>(memory.data()));
}

std::uint32_t StepLog::layout() const { return shared_->layout; }

std::uint64_t StepLog::end() const { return shared_->end.load(std::memory_order_acquire); }

std::optional<LoggedStep> StepLog::At(std::uint64_t number) const {
  std::uint64_t word = shared_->steps[number % kSteps].load(std::memory_order_acquire);
  LoggedStep step;
  step.epoch = Take(&word, kEpochBits);
  step.cover = static_cast<std::int32_t>(Take(&word, kCoverBits)) + 1;
  step.layer.value = static_cast<std::int32_t>(Take(&word, kLayerBits));
  step.group = static_cast<std::uint32_t>(Take(&word, kGroupBits));
  if (word != LapOf(number)) return std::nullopt;
  return step;
}

StepLog::Appended StepLog::Append(std::uint64_t number, const LoggedStep& step) {
  if (number >= kSteps) {
    const std::uint64_t replaced = number - kSteps;
    for (const Memory::Place& place : shared_->places) {
      // A place that nobody has is far ahead of every step.
      if (place.done.load(std::memory_order_acquire) > replaced) continue;
      if (!FreeSilent(number - kSteps + 1)) return Appended::kFull;
      break;  // all that were behind are free
    }
  }
  std::atomic<std::uint64_t>& word = shared_->steps[number % kSteps];
  std::uint64_t before = word.load(std::memory_order_acquire);
  const std::uint64_t lap = before >> (64 - 14);
  const std::uint64_t expected = number < kSteps ? 0 : LapOf(number - kSteps);
  if (lap != expected ||
      !word.compare_exchange_strong(before, WordOf(number, step), std::memory_order_seq_cst)) {
    return Appended::kTaken;
  }
  // Only a hint for those that begin to read: whoever appends later moves it further.
  std::uint64_t end = shared_->end.load(std::memory_order_relaxed);
  while (end <= number && !shared_->end.compare_exchange_weak(end, number + 1)) {
  }
  shared_->bell.fetch_add(1);
  // Most steps find nobody asleep, and leave the line with the others.
  if (shared_->asleep.load() != 0 && shared_->asleep.exchange(0) != 0) WakeAll();
  return Appended::kYes;
}

bool StepLog::WaitFor(std::uint64_t number, Duration spin, Duration timeout) const {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begun = now();
  for (std::uint32_t turn = 0;; ++turn) {
    if (At(number).has_value()) return true;
    // The clock is as far away as the memory.
    if (turn % 16 == 0 && now() - begun >= spin) break;
    Pause();
  }
  const std::uint32_t bell = shared_->bell.load();
  shared_->asleep.store(1);
  // Between this look and the sleep a new step changes the bell, and the sleep ends at once.
  if (!At(number).has_value()) {
    const std::int64_t ns = std::max<std::int64_t>((timeout - (now() - begun)).count(), 0);
    const timespec limit = {.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000),
                            .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
    (void)syscall(SYS_futex, &shared_->bell, FUTEX_WAIT, bell, &limit, nullptr, 0);
  }
  return At(number).has_value();
}

void StepLog::WakeAll() const {
  (void)syscall(SYS_futex, &shared_->bell, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr,
                nullptr, 0);
}

StepLog::Place StepLog::Enter(std::uint64_t from) {
  const std::uint64_t owner = shared_->owners.fetch_add(1) + 1;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (std::uint32_t number = 0; number < kPlacesMax; ++number) {
      Memory::Place& place = shared_->places[number];
      std::uint64_t free = 0;
      if (!place.owner.compare_exchange_strong(free, owner)) continue;
      place.heard_ns.store(NowNs());
      place.done.store(from);
      return {number, owner};
    }
    FreeSilent(kFree);
  }
  return {};
}

bool StepLog::FreeSilent(std::uint64_t number) {
  const std::int64_t now = NowNs();
  bool all = true;
  for (Memory::Place& place : shared_->places) {
    if (place.done.load(std::memory_order_acquire) >= number) continue;
    std::uint64_t owner = place.owner.load();
    const bool silent = now - place.heard_ns.load() >= std::chrono::nanoseconds(kSilentMax).count();
    if (owner != 0 && !silent) {
      all = false;
      continue;
    }
    // In this order: whoever enters next finds a place that holds nobody up.
    place.done.store(kFree);
    if (owner != 0) place.owner.compare_exchange_strong(owner, 0);
  }
  return all;
}

void StepLog::Leave(const Place& place) {
  if (place.number >= kPlacesMax) return;
  Memory::Place& own = shared_->places[place.number];
  if (own.owner.load() != place.owner) return;
  own.done.store(kFree);
  own.owner.store(0);
}

void StepLog::Done(const Place& place, std::uint64_t number) {
  if (place.number >= kPlacesMax) return;
  Memory::Place& own = shared_->places[place.number];
  if (own.owner.load(std::memory_order_relaxed) != place.owner) return;
  own.done.store(number, std::memory_order_release);
}

bool StepLog::Has(std::uint64_t owner) const {
  return std::any_of(std::begin(shared_->places), std::end(shared_->places),
                     [&](const Memory::Place& place) { return place.owner.load() == owner; });
}

std::uint32_t StepLog::TakeGroup(const Place& place) {
  if (place.number >= kPlacesMax || shared_->places[place.number].owner.load() != place.owner) {
    return kNoGroup;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (std::uint32_t turn = 0; turn < LoggedStep::kGroupsMax; ++turn) {
      const std::uint32_t group = shared_->next_group.fetch_add(1) % LoggedStep::kGroupsMax;
      std::uint64_t owner = shared_->groups[group].load();
      if (owner != 0 && Has(owner)) continue;
      if (shared_->groups[group].compare_exchange_strong(owner, place.owner)) return group;
    }
    FreeSilent(kFree);
  }
  return kNoGroup;
}

void StepLog::GiveGroup(const Place& place, std::uint32_t group) {
  if (group >= LoggedStep::kGroupsMax) return;
  std::uint64_t owner = place.owner;
  shared_->groups[group].compare_exchange_strong(owner, 0);
}

bool StepLog::Keep(const Place& place, std::uint64_t number) {
  if (place.number >= kPlacesMax) return false;
  Memory::Place& own = shared_->places[place.number];
  if (own.owner.load() != place.owner) return false;
  own.heard_ns.store(NowNs());
  own.done.store(number, std::memory_order_release);
  // It may have been taken away between the two.
  return own.owner.load() == place.owner;
}

}  // namespace switchyard
