// What happens to a coordinator (Event) and what it wants done about it (Effect): the whole of its
// contact with the world.
//
// Effects of one Step are to be carried out in order; a WriteStore or LoadModel is answered by one
// StoreWritten or ModelLoaded event later. Plain data.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/store/state_store.h"
#include "coordinator/stream_ids.h"
#include "coordinator/view.h"
#include "core/base/log.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

// A worker's stream.
struct StreamOpened {
  StreamId stream;
};
struct StreamMessage {
  StreamId stream;
  WorkerMessage message;
};
struct StreamClosed {
  StreamId stream;
};
// An operator's.
struct ApplyRequested {
  RequestId request;
  DeploymentSpec spec;
  bool dry_run = false;
};
struct ModelLoaded {
  RequestId request;
  absl::StatusOr<ModelFacts> facts;
};
struct StoreWritten {
  WriteId write;
  absl::Status status;
};
// A source's.
struct SessionRequested {
  RequestId request;
  OpenSessionRequest order;
};
struct SessionEnded {
  RequestId request;
  SessionId session;
};
struct WatchStarted {
  WatchId watch;
  WatchRequest order;
};
struct WatchStopped {
  WatchId watch;
};
// Time alone. Needed a few times in every lease_ttl.
struct Tick {};

using Event =
    std::variant<StreamOpened, StreamMessage, StreamClosed, ApplyRequested, ModelLoaded,
                 StoreWritten, SessionRequested, SessionEnded, WatchStarted, WatchStopped, Tick>;

struct SendMessage {
  StreamId stream;
  CoordinatorMessage message;
};
// The stream is forgotten: nothing that still comes from it matters.
struct CloseStream {
  StreamId stream;
  absl::Status why;
};
struct LoadModel {
  RequestId request;
  std::string checkpoint;
};
struct WriteStore {
  WriteId write;
  StoreWrite change;
};
struct AnswerApply {
  RequestId request;
  absl::StatusOr<DeploymentView> result;
};
struct AnswerSession {
  RequestId request;
  absl::StatusOr<SessionGrant> result;
};
struct AnswerEnd {
  RequestId request;
};
struct SendPlanUpdate {
  WatchId watch;
  std::shared_ptr<const PlanUpdate> news;
};
// The watch is forgotten.
struct CloseWatch {
  WatchId watch;
  absl::Status why;
};
// A line for the log.
struct Report {
  LogLevel level = LogLevel::kInfo;
  std::string text;
  std::string once = {};  // a process says it once under this name; empty: every time
};

using Effect = std::variant<SendMessage, CloseStream, LoadModel, WriteStore, AnswerApply,
                            AnswerSession, AnswerEnd, SendPlanUpdate, CloseWatch, Report>;

// Collects the effects of one step and names the writes.
class Outbox {
 public:
  template <typename T>
  void Add(T effect) {
    effects_.emplace_back(std::move(effect));
  }
  template <typename... Args>
  void Info(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Add(Report{LogLevel::kInfo, absl::StrFormat(format, args...)});
  }
  template <typename... Args>
  void Warn(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Add(Report{LogLevel::kWarn, absl::StrFormat(format, args...)});
  }
  void WarnOnce(absl::string_view once, absl::string_view text) {
    Add(Report{LogLevel::kWarn, std::string(text), std::string(once)});
  }
  WriteId Write(StoreWrite change) {
    Add(WriteStore{WriteId{++last_write_}, std::move(change)});
    return WriteId{last_write_};
  }
  std::vector<Effect> Take() { return std::exchange(effects_, {}); }

 private:
  std::vector<Effect> effects_;
  std::uint64_t last_write_ = 0;
};

}  // namespace switchyard
