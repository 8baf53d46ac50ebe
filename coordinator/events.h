// Events go into the coordinator; effects (coordinator/effects.h) come out. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/spec/deployment.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/worker_duty.h"
#include "coordinator/threads/stream_ids.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"
#include "core/tenants/tenant.h"

namespace switchyard {

// From a worker.
struct StreamOpened {
  StreamId stream;
};
struct StreamMessage {
  StreamId stream;
  WorkerMessage message;
  // Given up with the event. The stream is read on from then, so that a worker has one message
  // here, however fast it sends.
  std::shared_ptr<const void> handled = nullptr;
};
struct StreamClosed {
  StreamId stream;
};
// The metadata key under which WorkerDialed::status names a witness, where nobody but that witness
// could not connect.
inline constexpr char kWitnessKey[] = "witness";
// Answers DialWorker, whose fields it repeats.
struct WorkerDialed {
  std::string worker;
  Incarnation incarnation;
  std::string endpoint;
  // OK: this worker answered at its endpoint, and a witness can connect to it, unless none answers.
  absl::Status status;
};
// From an operator, like the next three. The answer is AnswerDeployment.
struct ApplyRequested {
  RequestId id;
  DeploymentSpec spec;
  bool dry_run = false;
  // A dry run reads the weights too, so that its answer has their hash.
  bool hash_weights = false;
};
// The answer is AnswerDeployment.
struct RollbackRequested {
  RequestId id;
  std::string deployment;
  // 0: the one before that has served.
  std::uint64_t to_revision = 0;
};
// The answer is AnswerDeployment.
struct DeleteRequested {
  RequestId id;
  std::string deployment;
  // Its sessions end at once; else it waits for them.
  bool now = false;
};
// The answer is AnswerDuty.
struct DutyRequested {
  RequestId id;
  std::string worker;
  WorkerDuty duty = WorkerDuty::kServe;
  // Drain even where the other workers cannot serve what it serves.
  bool force = false;
};
// Answers CheckModel. The manifest is empty.
struct ModelChecked {
  RequestId id;
  absl::StatusOr<ModelFacts> facts;
};
// How far a LoadModel is that goes on. Any number of them; they may be dropped.
struct ModelProgress {
  RequestId id;
  std::int64_t bytes_done = 0;
  std::int64_t bytes = 0;
};
// Answers LoadModel, also one that was canceled.
struct ModelLoaded {
  RequestId id;
  absl::StatusOr<ModelFacts> facts;
};
// Answers WriteStore. Writes are answered in the order in which they were sent.
struct StoreWritten {
  WriteId write;
  absl::Status status;
};
// From a source. The answers are AnswerSession, AnswerEnd and, for a watch, any number of
// SendPlanUpdate and at most one CloseWatch.
struct SessionRequested {
  RequestId id;
  OpenSessionRequest request;
  TenantRef tenant = {};  // of whoever it is for
};
struct SessionEnded {
  RequestId id;
  SessionId session;
  std::string caller = {};  // as in AttachRequest
};
struct WatchStarted {
  WatchId watch;
  WatchRequest request;
  std::string peer = {};  // the address of the source, for people
  TenantRef tenant = {};  // of its caller
};
struct WatchStopped {
  WatchId watch;
};
// Only time has passed. Leases, grace times and retries are checked at ticks, so that there must be
// a few in every lease_ttl.
struct Tick {};

using Event = std::variant<StreamOpened, StreamMessage, StreamClosed, WorkerDialed, ApplyRequested,
                           RollbackRequested, DeleteRequested, DutyRequested, ModelChecked,
                           ModelProgress, ModelLoaded, StoreWritten, SessionRequested, SessionEnded,
                           WatchStarted, WatchStopped, Tick>;

}  // namespace switchyard
