// Effects come out of the coordinator; events (coordinator/events.h) go in.
//
// Effects of one step must be carried out in order: a plan is announced before the epoch before it
// is retired, and writes reach the store in the order of their ids. Each WriteStore, CheckModel,
// LoadModel and DialWorker is answered later, by exactly one StoreWritten, ModelChecked,
// ModelLoaded or WorkerDialed. Plain data.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/store/state_store.h"
#include "coordinator/threads/stream_ids.h"
#include "coordinator/view.h"
#include "core/base/log.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

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
// Reads a checkpoint's headers, which is soon done.
struct CheckModel {
  RequestId id;
  std::string checkpoint;
};
// Reads all of a checkpoint, which may take minutes; other events go on meanwhile.
struct LoadModel {
  RequestId id;
  std::string checkpoint;
};
// Nobody needs the model of that LoadModel any more.
struct CancelLoad {
  RequestId id;
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
  absl::Status result;
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

using Effect = std::variant<SendMessage, CloseStream, DialWorker, CheckModel, LoadModel, CancelLoad,
                            WriteStore, AnswerDeployment, AnswerDuty, AnswerSession, AnswerEnd,
                            SendPlanUpdate, CloseWatch, Report>;

}  // namespace switchyard
