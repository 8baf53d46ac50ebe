// A source, the coordinator's driver and workers in one process: calls instead of gRPC.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "coordinator/driver.h"
#include "core/base/mutex.h"
#include "worker/expert/expert_service.h"
#include "worker/source/session_channel.h"

namespace switchyard {

// One worker of this process, for as long as it lives: calls find it gone after Retire.
// Thread-safe.
class InProcessWorker {
 public:
  InProcessWorker(std::string worker_id, ExpertService* experts)
      : worker_id_(std::move(worker_id)), experts_(experts) {}

  [[nodiscard]] const std::string& worker_id() const { return worker_id_; }
  // One call at a time. kUnavailable (WORKER_LOST) when the worker is gone.
  template <typename Result>
  Result Call(absl::FunctionRef<Result(ExpertService&)> call) {
    const MutexLock lock(mutex_);
    if (experts_ == nullptr) return Gone();
    return call(*experts_);
  }
  // When it has returned, no call is in the service and none comes any more.
  void Retire();

 private:
  [[nodiscard]] absl::Status Gone() const;

  const std::string worker_id_;
  Mutex mutex_;
  ExpertService* experts_ SY_GUARDED_BY(mutex_);  // nullptr: gone
};

// The workers of this process by endpoint. Thread-safe.
class InProcessWorkers {
 public:
  // `experts` stays valid until Remove has returned.
  void Add(const std::string& endpoint, const std::string& worker_id, ExpertService* experts);
  void Remove(const std::string& endpoint);
  // nullptr when there is no such worker.
  [[nodiscard]] std::shared_ptr<InProcessWorker> Find(const std::string& endpoint) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<InProcessWorker>> workers_ SY_GUARDED_BY(mutex_);
};

// `driver` and `workers` outlive the channel and its streams. Attach, Bind and Release wait for the
// worker's data thread, which never waits for a source. Thread-safe.
std::unique_ptr<SessionChannel> MakeInProcessSessionChannel(Driver* driver,
                                                            InProcessWorkers* workers);

}  // namespace switchyard
