// A few threads that help a caller through a loop. Work is claimed index by index, so a helper that
// wakes late costs nothing: the caller does its share.
//
// Run may be called from any thread. The pool serves one caller at a time; one that finds it busy
// runs its loop by itself. Idle helpers spin for some 30 us (unless there are more threads than
// CPUs) and then sleep, 100 ms at most at a time. Run allocates nothing and takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace switchyard {

class ComputePool {
 public:
  // `thread` is 0 for the caller of Run, 1 to threads() - 1 for helpers.
  using Task = absl::FunctionRef<void(std::int64_t index, int thread)>;
  static constexpr std::int64_t kIndicesMax = 4095;  // of one Run

  // `threads` >= 1 counts the caller: threads - 1 are started. Errors: kResourceExhausted
  // (OUT_OF_MEMORY) when the system starts no more threads.
  static absl::StatusOr<std::unique_ptr<ComputePool>> Create(int threads);
  // REQUIRES: no Run is in progress. Joins the helpers.
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls task(i, thread) once for each i in [0, count), count <= kIndicesMax; returns when all
  // calls have returned. What they wrote is visible to the caller.
  void Run(std::int64_t count, Task task);

  // The same for the indices below the returned number: no more are begun once `stop` returns true,
  // which the caller's thread asks after each index that it has run. At least 1 unless count is 0.
  std::int64_t RunUntil(std::int64_t count, Task task, absl::FunctionRef<bool()> stop);

 private:
  explicit ComputePool(int spins) : spins_(spins) {}
  // A helper's life: help, spin, sleep, until stop_.
  void HelperLoop(int thread);
  // Runs indices of the job in `claims_` until none is left; false when there was none. `stop` is
  // asked after each; the job then ends with what has been claimed.
  bool Help(int thread, absl::FunctionRef<bool()> stop);
  // Takes the indices that nobody has claimed out of the job.
  void DropUnclaimed();
  // Spins first: the last helper is mostly within microseconds of its end.
  void WaitUntilDone(std::int64_t count);

  const int spins_;

  // {generation: 40 bits, count: 12, next: 12}. Claiming index `next` is a compare-and-swap on the
  // whole, so it can only succeed while its job lasts, and a job lasts while a claim is open.
  std::atomic<std::uint64_t> claims_{0};
  std::atomic<std::int64_t> done_{0};
  const Task* task_ = nullptr;  // of the job; written before claims_ names it

  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> posted_{0};  // futex: helpers sleep on it
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> finished_{0};  // futex: the caller sleeps on it
  std::atomic<bool> caller_sleeps_{false};

  std::vector<std::thread> helpers_;
};

}  // namespace switchyard
