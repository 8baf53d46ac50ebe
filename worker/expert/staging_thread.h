// The thread that stages epochs and frees them, one job at a time, away from the data thread.
//
// Thread-safe. `done` comes from the staging thread, at most once, and not for a key that was
// dropped meanwhile; it must return quickly.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/mutex.h"
#include "core/control_messages.h"
#include "worker/expert/epoch_stager.h"
#include "worker/expert/expert_times.h"

namespace switchyard {

class StagingThread {
 public:
  explicit StagingThread(StagerOptions options);
  ~StagingThread();
  StagingThread(const StagingThread&) = delete;
  StagingThread& operator=(const StagingThread&) = delete;

  // Queues the staging and does not wait. Errors for `done`: those of EpochStager::Stage;
  // kResourceExhausted (NO_CREDITS) when too many jobs wait.
  void Stage(const Prepare& prepare, std::function<void(absl::Status)> done);
  // Hands out the epoch that was staged under that key and is now to serve. Its experts stay known
  // here, to be shared, until Drop. Empty when there is none.
  StagedEpoch Take(absl::string_view deployment, Epoch epoch);
  // Forgets the key: a staged epoch is freed, and a staging that runs is stopped; its `done` never
  // comes.
  void Drop(absl::string_view deployment, Epoch epoch);
  // Destroys the epoch on this thread.
  void Free(StagedEpoch epoch);
  // Stops the staging that runs and ends the thread, after the expert that is being loaded. Jobs
  // that wait are dropped without a call of `done`. Idempotent; the destructor does it.
  void Stop();
  // Staged and taken epochs, oldest first.
  [[nodiscard]] std::vector<ResidentEpoch> Resident() const;
  // How far the epochs are that are not taken: those that are staged, oldest first, then the one
  // that is being loaded, once it is known how much that is. At most kStagingReportsMax.
  [[nodiscard]] std::vector<StagingReport> Reports() const;
  // Returns the bytes of the weights of staged and taken epochs, as of the last job that ended.
  // Does not wait.
  [[nodiscard]] std::int64_t WeightBytes() const { return weight_bytes_.load(); }
  [[nodiscard]] const LoadTimes& times() const { return times_; }

 private:
  // One epoch to stage. `done` is empty once the job was dropped.
  struct Job {
    Prepare prepare;
    std::function<void(absl::Status)> done;
    std::stop_source stop;
    // Unset until it is known; under the lock, as `done` is.
    std::optional<StagingReport> report = {};
  };
  // An epoch that was staged and not dropped.
  struct Held {
    std::shared_ptr<const EpochRuntime> runtime;
    StagedEpoch staged;  // empty once taken
    StagingReport report;
    bool taken = false;
  };
  // Stage a job, or free an epoch: in one queue, so that an epoch is freed before the next one is
  // loaded.
  using Work = std::variant<std::shared_ptr<Job>, StagedEpoch>;

  void Run();
  // Runs without the lock; only its beginning and end take it.
  void StageOne(const std::shared_ptr<Job>& job);
  void SetReport(Job& job, const StagingProgress& progress);
  void CountWeights();
  // The runtimes of all epochs that are held, oldest first.
  [[nodiscard]] std::vector<std::shared_ptr<const EpochRuntime>> Runtimes() const;

  EpochStager stager_;
  LoadTimes times_;                            // written by the thread
  std::atomic<std::int64_t> weight_bytes_{0};  // written by the thread
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Work> work_ SY_GUARDED_BY(mutex_);
  std::shared_ptr<Job> running_ SY_GUARDED_BY(mutex_);
  std::vector<Held> held_ SY_GUARDED_BY(mutex_);
  bool stopping_ SY_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // last: starts when all above exists
};

}  // namespace switchyard
