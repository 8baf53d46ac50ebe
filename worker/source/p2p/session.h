// One open session of a source: attached to its workers, following the deployment's epochs, running
// steps. Everything but threads: driven by Poll and by the transport's callbacks, time as an
// argument.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/mutant.h"
#include "core/rng.h"
#include "core/session_messages.h"
#include "worker/source/p2p/attachment.h"
#include "worker/source/p2p/epoch_binder.h"
#include "worker/source/p2p/step_engine.h"
#include "worker/source/session_channel.h"

namespace switchyard {

struct SourceSessionOptions {
  SessionChannel* channel = nullptr;
  Transport* transport = nullptr;
  const DeviceBackend* device = nullptr;
  const Clock* clock = nullptr;
  Rng* rng = nullptr;
  std::function<void()> wake;         // from any thread: Poll is wanted
  OwnExperts* own_experts = nullptr;  // gateway
  std::string own_worker_id;          // gateway
  Incarnation incarnation;
  SessionGrant grant;
  MutantId mutant = MutantId::kNone;
  TransportChoice transport_choice = TransportChoice::kAuto;
  std::uint32_t pairs = 8;
  std::uint32_t chunk_rows_max = 1024;
  Duration given_up_max = std::chrono::seconds(2);
  Duration watch_backoff_min = std::chrono::milliseconds(100);
  Duration watch_backoff_max = std::chrono::seconds(5);
};

// What `status` shows of one attachment.
struct AttachmentStatus {
  std::string worker_id;
  bool ready = false;
  std::string request_path;  // source -> worker: "mapped", "messages", "inproc", "direct"
  std::string reply_path;    // worker -> source
  std::uint32_t pairs = 0;
  std::uint32_t pairs_free = 0;
  StagingBytes slot_bytes;  // of a request's slot and of a reply's; 0 for "direct"
  std::uint64_t frames_sent = 0;
  std::uint64_t replies_late = 0;
  std::uint64_t replies_unexpected = 0;
  std::string last_error;
};

struct SourceSessionStatus {
  SessionId session;
  Epoch epoch;  // 0 while opening
  PlanHash hash;
  bool watching = false;  // the coordinator is reachable
  std::uint32_t steps_in_flight = 0;
  StepTimes times;
  std::vector<AttachmentStatus> attachments;
};

class SourceSession {
 public:
  explicit SourceSession(SourceSessionOptions options);
  ~SourceSession();

  absl::Status Start(TimePoint now);
  // True when it did anything.
  bool Poll(TimePoint now);
  // OK once every worker of a plan is attached; kUnavailable (NOT_READY) with the last error
  // before. What no retry can change is another code.
  [[nodiscard]] absl::Status ready() const;

  // As StepEngine; kUnavailable (NOT_READY) before the session is ready. Where StepEngine says
  // kUnavailable and the coordinator does not know the session and its plan any more, what the
  // coordinator said: kFailedPrecondition (STALE_EPOCH) or kNotFound (UNKNOWN_MODEL), final.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now);
  [[nodiscard]] absl::StatusOr<bool> Done(const StepTicket& ticket) const {
    return engine_.Done(ticket);
  }
  absl::Status Take(const StepTicket& ticket, TimePoint now) { return engine_.Take(ticket, now); }

  // From the transport, for a link whose owner is one of this session's attachments.
  void OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload, TimePoint now);
  void OnLinkDown(Attachment& attachment, const absl::Status& why, TimePoint now);

  // Fails what is in flight and closes every attachment; the coordinator is told by the caller.
  void Close(TimePoint now);

  [[nodiscard]] std::optional<TimePoint> NextDeadline() const;
  [[nodiscard]] const BoundPlan* binding() const { return binder_.current(); }
  [[nodiscard]] const SessionGrant& grant() const { return options_.grant; }
  [[nodiscard]] SourceSessionStatus Status() const;
  [[nodiscard]] bool attached() const { return !binder_.attachments().empty(); }

 private:
  class WatchEvents;

  bool HandleEvents(TimePoint now);
  void StartWatch();
  bool LoseStuckAttachments(TimePoint now);

  SourceSessionOptions options_;
  SessionEvents events_;
  std::vector<SessionEvent> taken_;
  StepEngine engine_;
  EpochBinder binder_;
  std::unique_ptr<WatchEvents> watch_sink_;
  std::unique_ptr<WatchStream> watch_;
  std::optional<TimePoint> watch_retry_at_;
  Duration watch_backoff_{};
  absl::Status watch_refused_;  // the coordinator does not know the session any more
  bool closed_ = false;
};

}  // namespace switchyard
