// The channel between a source, the coordinator's driver and workers in one process. It uses direct
// calls instead of gRPC.
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

// One worker of this process. Calls after Retire fail as if the worker's process had ended. Held by
// shared_ptr, because a stream may exist longer than its worker. Thread-safe.
class InProcessWorker {
 public:
  InProcessWorker(std::string worker_id, ExpertService* experts)
      : worker_id_(std::move(worker_id)), experts_(experts) {}

  // The worker's id, for counters and errors.
  [[nodiscard]] const std::string& worker_id() const { return worker_id_; }
  // Runs `call` under the worker's lock, so calls are serialized. kUnavailable (WORKER_LOST) after
  // Retire.
  template <typename Result>
  Result Call(absl::FunctionRef<Result(ExpertService&)> call) {
    const MutexLock lock(mutex_);
    if (experts_ == nullptr) return Gone();
    return call(*experts_);
  }
  // Waits for a running call. After it has returned, no call reaches the service.
  void Retire();

 private:
  // The error of calls after Retire.
  [[nodiscard]] absl::Status Gone() const;

  const std::string worker_id_;
  // Serializes calls and protects against Retire during one.
  Mutex mutex_;
  ExpertService* experts_ SY_GUARDED_BY(mutex_);  // nullptr: gone
};

// The workers of this process by endpoint. Thread-safe.
class InProcessWorkers {
 public:
  // `experts` must stay valid until Remove has returned.
  void Add(const std::string& endpoint, const std::string& worker_id, ExpertService* experts);
  // Retires the worker and removes it. Does nothing for an unknown endpoint.
  void Remove(const std::string& endpoint);
  // The worker at `endpoint`; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<InProcessWorker> Find(const std::string& endpoint) const;

 private:
  // Held to find a worker, never while one is called.
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<InProcessWorker>> workers_ SY_GUARDED_BY(mutex_);
};

// `driver` and `workers` must outlive the channel and its streams. Attach, Bind and Release wait
// for the worker's data thread. This cannot deadlock, because that thread never waits for a source.
// Thread-safe.
std::unique_ptr<SessionChannel> MakeInProcessSessionChannel(Driver* driver,
                                                            InProcessWorkers* workers);

}  // namespace switchyard
