// The coordinator's whole contact with the outside: events go in, effects come out.
//
// Effects of one step must be carried out in order: a plan is announced before the epoch before it
// is retired, and writes reach the store in the order of their ids. Each WriteStore, LoadModel and
// DialWorker is answered later, by exactly one StoreWritten, ModelLoaded or WorkerDialed. Plain
// data.
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
#include "coordinator/view.h"
#include "core/base/log.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

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
// How far a LoadModel is that goes on. Any number of them; they may be dropped.
struct ModelProgress {
  RequestId id;
  std::int64_t bytes_done = 0;
  std::int64_t bytes = 0;
};
// Answers LoadModel.
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
};
struct SessionEnded {
  RequestId id;
  SessionId session;
};
struct WatchStarted {
  WatchId watch;
  WatchRequest request;
  std::string peer = {};  // the address of the source, for people
};
struct WatchStopped {
  WatchId watch;
};
// Only time has passed. Leases, grace times and retries are checked at ticks, so that there must be
// a few in every lease_ttl.
struct Tick {};

using Event =
    std::variant<StreamOpened, StreamMessage, StreamClosed, WorkerDialed, ApplyRequested,
                 RollbackRequested, DeleteRequested, DutyRequested, ModelProgress, ModelLoaded,
                 StoreWritten, SessionRequested, SessionEnded, WatchStarted, WatchStopped, Tick>;

// To a worker. If the stream has ended meanwhile, it is dropped.
struct SendMessage {
  StreamId stream;
  CoordinatorMessage message;
};
// The coordinator has forgotten the stream and ignores whatever still arrives on it.
struct CloseStream {
  StreamId stream;
  absl::Status why;
};
// Another worker, asked whether it can connect to one that joins.
struct DialWitness {
  std::string worker;
  std::string endpoint;
};
// Connects to a worker as its sources will, and compares the identity of who answers. Then asks the
// witnesses, in turn until one can connect to the worker, to its ports for rows too. Ends within
// seconds; other events go on meanwhile.
struct DialWorker {
  std::string worker;
  Incarnation incarnation;
  std::string endpoint;
  std::vector<DialWitness> witnesses;
};
// Reads a checkpoint, which may take minutes; other events go on meanwhile.
struct LoadModel {
  RequestId id;
  std::string checkpoint;
};
// One durable change. The coordinator waits for its outcome before it sends what depends on it.
struct WriteStore {
  WriteId write;
  StoreWrite change;
};
// Each request gets exactly one of these answers.
struct AnswerDeployment {
  RequestId id;
  absl::StatusOr<DeploymentView> result;
};
struct AnswerDuty {
  RequestId id;
  absl::StatusOr<DutyView> result;
};
struct AnswerSession {
  RequestId id;
  absl::StatusOr<SessionGrant> result;
};
struct AnswerEnd {
  RequestId id;
};
struct SendPlanUpdate {
  WatchId watch;
  std::shared_ptr<const PlanUpdate> update;
};
// The coordinator has forgotten the watch.
struct CloseWatch {
  WatchId watch;
  absl::Status why;
};
// A line for the log.
struct Report {
  LogLevel level = LogLevel::kInfo;
  std::string text;
  // The process logs one line for each such name; empty: every line.
  std::string once = {};
  LogFields fields = {};
};

using Effect =
    std::variant<SendMessage, CloseStream, DialWorker, LoadModel, WriteStore, AnswerDeployment,
                 AnswerDuty, AnswerSession, AnswerEnd, SendPlanUpdate, CloseWatch, Report>;

}  // namespace switchyard
