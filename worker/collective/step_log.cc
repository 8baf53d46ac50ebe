#include "worker/collective/step_log.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

#include "core/base/check.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kFree = std::numeric_limits<std::uint64_t>::max();

// lap 14 | group 8 | layer 14 | cover - 1 10 | epoch 18. Lap 0 is that of memory without a step.
constexpr int kEpochBits = 18;
constexpr int kCoverBits = 10;
constexpr int kLayerBits = 14;
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

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

struct StepLog::Memory {
  alignas(64) std::atomic<std::uint64_t> end;  // all steps before it are there
  alignas(64) std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> sleepers;
  struct Place {
    alignas(64) std::atomic<std::uint64_t> done;  // kFree: nobody's
  };
  Place places[kPlacesMax];
  alignas(64) std::atomic<std::uint64_t> steps[kSteps];
};

std::size_t StepLog::Bytes() { return sizeof(Memory); }

StepLog StepLog::Make(std::span<std::byte> memory) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
  SY_CHECK(memory.size() >= sizeof(Memory), "memory of a log");
  auto* const shared = new (memory.data()) Memory{};
  for (Memory::Place& place : shared->places) place.done.store(kFree);
  return StepLog(shared);
}

StepLog StepLog::View(std::span<std::byte> memory) {
  SY_CHECK(memory.size() >= sizeof(Memory), "memory of a log");
  return StepLog(reinterpret_cast<Memory*>(memory.data()));
}

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
    for (const Memory::Place& place : shared_->places) {
      // A place that nobody has is far ahead of every step.
      if (place.done.load(std::memory_order_acquire) <= number - kSteps) return Appended::kFull;
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
  if (shared_->sleepers.load() != 0) WakeAll();
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
  shared_->sleepers.fetch_add(1);
  // Between this look and the sleep a new step changes the bell, and the sleep ends at once.
  if (!At(number).has_value()) {
    const std::int64_t ns = std::max<std::int64_t>((timeout - (now() - begun)).count(), 0);
    const timespec limit = {.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000),
                            .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
    (void)syscall(SYS_futex, &shared_->bell, FUTEX_WAIT, bell, &limit, nullptr, 0);
  }
  shared_->sleepers.fetch_sub(1);
  return At(number).has_value();
}

void StepLog::WakeAll() const {
  (void)syscall(SYS_futex, &shared_->bell, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr,
                nullptr, 0);
}

std::uint32_t StepLog::Enter(std::uint64_t from) {
  for (std::uint32_t place = 0; place < kPlacesMax; ++place) {
    std::uint64_t free = kFree;
    if (shared_->places[place].done.compare_exchange_strong(free, from)) return place;
  }
  return kNoPlace;
}

void StepLog::Leave(std::uint32_t place) {
  if (place < kPlacesMax) shared_->places[place].done.store(kFree);
}

void StepLog::Done(std::uint32_t place, std::uint64_t number) {
  if (place < kPlacesMax) shared_->places[place].done.store(number, std::memory_order_release);
}

}  // namespace switchyard
