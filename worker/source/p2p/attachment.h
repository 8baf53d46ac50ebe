// One attachment as its source sees it: the control stream, the link with its two rings, the
// credits.
//
//   kAttaching --grant, Connect--> kReady --stream, link or credit failure--> kDown --retry--> ...
//
// The object outlives its streams: a retry gets a new serial, link and credits, and what comes late
// from an older life is dropped by that serial. Not thread-safe but for the event queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/plan.h"
#include "core/resolve/staging_bytes.h"
#include "core/session_messages.h"
#include "worker/source/p2p/credits.h"
#include "worker/source/session_channel.h"
#include "worker/transport/transport.h"

namespace switchyard {

// What the channel's threads tell the session.
struct AttachedEvent {
  std::uint64_t serial = 0;
  AttachGrant grant;
};
struct BoundEvent {
  std::uint64_t serial = 0;
  Epoch epoch;
  absl::Status result;
};
struct AttachEndedEvent {
  std::uint64_t serial = 0;
  absl::Status why;
};
struct PlanEvent {
  PlanUpdate news;
};
struct WatchEndedEvent {
  absl::Status why;
};
using SessionEvent =
    std::variant<AttachedEvent, BoundEvent, AttachEndedEvent, PlanEvent, WatchEndedEvent>;

// From any thread to the session's. Its length is bounded by what streams can say: three events an
// attachment and epoch, and of the plans only the newest is kept. Thread-safe.
class SessionEvents {
 public:
  // `wake` makes the session's thread look; called without the lock.
  explicit SessionEvents(std::function<void()> wake) : wake_(std::move(wake)) {}
  void Push(SessionEvent event);
  // Swaps the events into `out`, which is cleared first.
  void Take(std::vector<SessionEvent>* out);

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<SessionEvent> events_;  // guarded by mutex_
};

class SourceSession;

// Turns a stream's calls into events.
class AttachEvents final : public AttachSink {
 public:
  AttachEvents(std::uint64_t serial, SessionEvents* events) : serial_(serial), events_(events) {}
  void OnAttached(const AttachGrant& grant) override;
  void OnBound(Epoch epoch, const absl::Status& result) override;
  void OnAttachEnded(const absl::Status& why) override;

 private:
  std::uint64_t serial_;
  SessionEvents* events_;
};

struct Attachment {
  enum class State : std::uint8_t { kAttaching, kReady, kDown };

  SourceSession* session = nullptr;
  PlanWorker worker;  // id, incarnation, endpoint
  bool own = false;   // the gateway's own experts: no stream, no link
  // Of the slots of its rings, fixed for its whole life: where rows need larger ones, another
  // attachment to the same worker is made (epoch_binder.h).
  StagingBytes slot_bytes;
  State state = State::kDown;
  absl::Status down_why;
  std::uint64_t serial = 0;
  Epoch attach_epoch;  // that this life was attached for
  TimePoint retry_at{};
  Duration backoff{};
  CreditTable pairs{0};
  std::unique_ptr<AttachEvents> sink;
  std::unique_ptr<AttachStream> stream;
  std::unique_ptr<Link> link;
  AttachmentId peer_attachment;  // that frames to the worker must carry
  std::string reply_path;        // worker -> source, as the worker reads it back

  // What this source counted, for its own account of the session.
  std::uint64_t frames_sent = 0;
  std::uint64_t replies_late = 0;
  std::uint64_t replies_unexpected = 0;

  // Takes over what `ended` counted.
  void AbsorbCounts(const Attachment& ended);
  // Ends stream and link; credits of this life are gone with them.
  void Close();
};

}  // namespace switchyard
