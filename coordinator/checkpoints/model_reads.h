// Reads checkpoints on threads of its own: headers on one, so that a check waits for no load, and
// weights on another, one checkpoint at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/spec/deployment.h"
#include "coordinator/threads/serial_executor.h"
#include "coordinator/threads/stream_ids.h"
#include "core/base/clock.h"

namespace switchyard {

// One thread calls it. `done` and `progress` come from its own threads, and may come after its end:
// they must own what they use.
class ModelReads {
 public:
  using Done = std::function<void(absl::StatusOr<ModelFacts>)>;
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  ModelReads(ModelChecker check, ModelLoader load)
      : check_(std::move(check)), load_(std::move(load)) {}

  // Reads the headers. `done` is called once.
  void Check(const std::string& checkpoint, Done done);
  // Reads all of it. `progress` is called a few times a second, `done` once, also when it is
  // canceled (CANCELLED).
  void Load(RequestId id, const std::string& checkpoint, Progress progress, Done done);
  void Cancel(RequestId id);
  // Nobody will cancel it any more: its `done` was called.
  void Forget(RequestId id) { canceled_.erase(id); }

  // Cancels all. False when one still reads a piece after `deadline`: it goes on in its own thread.
  // May be called again, to wait longer.
  bool Stop(Duration deadline);

 private:
  const ModelChecker check_;
  const ModelLoader load_;
  std::map<RequestId, std::shared_ptr<std::atomic<bool>>> canceled_;
  SerialExecutor checker_;
  SerialExecutor loader_;
};

}  // namespace switchyard
