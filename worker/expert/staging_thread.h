// The thread that stages epochs and frees them, one order at a time, away from the data thread.
//
// Thread-safe. `done` comes from the staging thread, at most once, and not for a key that was
// dropped meanwhile; it must return quickly.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/control_messages.h"
#include "worker/expert/epoch_stager.h"

namespace switchyard {

class StagingThread {
 public:
  using Progress =
      std::function<void(absl::string_view deployment, Epoch epoch, const StagingProgress&)>;

  StagingThread(StagerOptions options, Progress on_progress);
  ~StagingThread();
  StagingThread(const StagingThread&) = delete;
  StagingThread& operator=(const StagingThread&) = delete;

  // Errors for `done`: those of EpochStager::Stage; kResourceExhausted (NO_CREDITS) when too many
  // orders wait.
  void Stage(const Prepare& prepare, std::function<void(absl::Status)> done);
  // What was staged under that key and is now to serve; it stays known here, to be shared, until
  // Drop. Empty when nothing is.
  StagedEpoch Take(absl::string_view deployment, Epoch epoch);
  // Forgets the key: what is staged is freed, what is being staged is stopped and not told.
  void Drop(absl::string_view deployment, Epoch epoch);
  // Frees it on this thread.
  void Free(StagedEpoch epoch);
  // Stops what is being staged and ends the thread, after the expert that is being loaded. What
  // waits is not told. Idempotent; the destructor does it.
  void Stop();
  // Staged and taken epochs, oldest first.
  [[nodiscard]] std::vector<ResidentEpoch> Resident() const;

 private:
  struct Order {
    Prepare prepare;
    std::function<void(absl::Status)> done;
    std::stop_source stop;
  };
  struct Held {
    std::shared_ptr<const EpochRuntime> runtime;
    StagedEpoch staged;  // empty once taken
    bool taken = false;
  };
  using Work = std::variant<std::shared_ptr<Order>, StagedEpoch>;

  void Run();
  void StageOne(const std::shared_ptr<Order>& order);
  [[nodiscard]] std::vector<std::shared_ptr<const EpochRuntime>> Runtimes() const;

  EpochStager stager_;
  const Progress on_progress_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Work> work_;
  std::shared_ptr<Order> running_;
  std::vector<Held> held_;
  bool stopping_ = false;

  std::thread thread_;  // last: starts when all above exists
};

}  // namespace switchyard
