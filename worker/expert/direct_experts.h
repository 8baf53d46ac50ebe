// A worker's own experts for the sessions that the same process is the source of (the gateway
// binding): called directly, with no ring between. Rows and hits are counted for each session, with
// no wire bytes.
//
// A session binds an epoch by its first Run on it and lets go of it by running on a later one, by
// Release or by Close; a retiring epoch takes no new binding and is unbound by Drop at the latest.
// Thread-safe. Runs are one at a time: they share one workspace for each shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/format/bf16.h"
#include "core/ids.h"
#include "core/plan.h"
#include "core/session_messages.h"
#include "worker/device/device_backend.h"
#include "worker/expert/chunk_executor.h"
#include "worker/expert/expert_attachment.h"
#include "worker/expert/layer_runtime.h"

namespace switchyard {

struct DirectChunk {
  absl::string_view deployment;
  SessionId session;
  Epoch epoch;
  PlanHash hash;
  LayerId layer;
  DispatchMode mode = DispatchMode::kNormal;
  std::span<const Bf16* const> rows;    // each [hidden], in wire order
  bool rounded = false;                 // the rows went through a quantised codec
  std::span<const std::byte> metadata;  // as the frame of this chunk would carry it
  Bf16* out = nullptr;                  // [rows, hidden], BF16, in the order of rows
};

class DirectExperts {
 public:
  struct Options {
    std::string worker_id;
    DeviceBackend* device = nullptr;  // outlives this
    ExecutorOptions executor;
  };
  explicit DirectExperts(Options options) : options_(std::move(options)) {}

  // Runs on the calling thread. Errors: kFailedPrecondition (STALE_EPOCH) when the epoch is not
  // committed here under that hash; kNotFound (UNKNOWN_LAYER); kInvalidArgument (FRAME) for
  // metadata that does not fit; kResourceExhausted (OUT_OF_MEMORY) at the first run of a shape.
  absl::Status Run(const DirectChunk& chunk);
  void Release(SessionId session, Epoch epoch);
  // Forgets the session and its counts.
  void Close(SessionId session);
  // Empty when the session has not run here; else one entry, path "inproc".
  [[nodiscard]] std::vector<AttachmentCounters> CountersOf(SessionId session) const;

  // The epoch's life, told by its keeper.
  void Activate(std::shared_ptr<const EpochRuntime> runtime);
  void Retire(absl::string_view deployment, Epoch epoch);
  [[nodiscard]] bool IsBound(absl::string_view deployment, Epoch epoch) const;
  void Drop(absl::string_view deployment, Epoch epoch);

 private:
  struct Committed {
    std::shared_ptr<const EpochRuntime> runtime;
    bool retiring = false;
  };
  struct Session {
    explicit Session(const EpochRuntime& runtime) : counts(runtime) {}
    std::vector<std::shared_ptr<const EpochRuntime>> bound;
    ServedCounts counts;
  };

  absl::StatusOr<std::shared_ptr<const EpochRuntime>> BindFor(const DirectChunk& chunk);
  absl::StatusOr<ChunkExecutor*> ExecutorFor(const MoeShape& shape);
  absl::Status Execute(const DirectChunk& chunk, const EpochRuntime& runtime);

  Options options_;

  mutable std::mutex mutex_;
  std::vector<Committed> committed_;       // guarded by mutex_
  std::map<SessionId, Session> sessions_;  // guarded by mutex_

  std::mutex run_mutex_;
  std::vector<std::unique_ptr<ChunkExecutor>> executors_;  // guarded by run_mutex_, one for a shape
  std::vector<std::uint32_t> metadata_;                    // guarded by run_mutex_
};

}  // namespace switchyard
