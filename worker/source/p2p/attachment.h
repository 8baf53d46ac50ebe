// One attachment as its source sees it: the control stream, the link with its two rings, the
// credits.
//
//   kPreparing --memory of the link, offer--> kAttaching --grant--> kConnecting --> kReady
//   each of them --stream, link or credit failure--> kDown --retry--> kPreparing
//
// The object outlives its streams: a retry gets a new serial, link and credits, and what comes late
// from an older life is dropped by that serial. Not thread-safe but for the event queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/ids.h"
#include "core/plan.h"
#include "core/resolve/staging_bytes.h"
#include "core/session_messages.h"
#include "worker/device/device_rings.h"
#include "worker/device/memory.h"
#include "worker/source/p2p/credits.h"
#include "worker/source/session_channel.h"
#include "worker/transport/transport.h"

namespace switchyard {

// Events from the channel's threads, one for each call of an AttachSink, and from the transport's
// (Transport::RunAside).
// The memory of the attachment's link is there.
struct MemoryMadeEvent {
  std::uint64_t serial = 0;
  std::shared_ptr<LinkMemory> memory;
  std::shared_ptr<DeviceRings> device_rings = nullptr;
};
// The worker has granted its ring. `serial` names the life of the attachment that made the request.
struct AttachedEvent {
  std::uint64_t serial = 0;
  AttachGrant grant;
};
// The worker has bound an epoch, or says why not.
struct BoundEvent {
  std::uint64_t serial = 0;
  Epoch epoch;
  absl::Status result;
};
// The stream is over: refused, closed by the worker, or the worker is gone.
struct AttachEndedEvent {
  std::uint64_t serial = 0;
  absl::Status why;
};
// The worker's ring is mapped, or cannot be.
struct PeerMetEvent {
  std::uint64_t serial = 0;
  absl::Status device_rings = absl::OkStatus();  // of DeviceRings::Meet, where there are any
};
// Applied in order, each only if its serial is that of the present life.
using AttachEvent =
    std::variant<MemoryMadeEvent, AttachedEvent, PeerMetEvent, BoundEvent, AttachEndedEvent>;

// Carries events from any thread to the runner's. Its length is bounded by what streams and memory
// can say: five events for an attachment and epoch. Thread-safe.
class AttachEventQueue {
 public:
  // `wake` makes the runner's thread look; it must not call this queue.
  explicit AttachEventQueue(std::function<void()> wake) : wake_(std::move(wake)) {}
  // From any thread.
  void Push(AttachEvent event);
  // Swaps the events into `out`, which is cleared first.
  void Take(std::vector<AttachEvent>* out);
  // The runner ends: `wake` is not called any more. What is aside may end later.
  void Close();

 private:
  Mutex mutex_;
  std::function<void()> wake_ SY_GUARDED_BY(mutex_);
  std::vector<AttachEvent> events_ SY_GUARDED_BY(mutex_);
};

// Turns a stream's calls into events, because the channel's threads must not enter the runner.
class AttachEvents final : public AttachSink {
 public:
  AttachEvents(std::uint64_t serial, AttachEventQueue* queue) : serial_(serial), queue_(queue) {}
  void OnAttached(const AttachGrant& grant) override;
  void OnBound(Epoch epoch, const absl::Status& result) override;
  void OnAttachEnded(const absl::Status& why) override;

 private:
  std::uint64_t serial_;
  AttachEventQueue* queue_;
};

class P2pRunner;

// The FrameSink of its own link, whose owner it is.
struct Attachment final : public FrameSink {
  // kReady means attached, not bound: BoundPlan::confirmed says for which epochs.
  enum class State : std::uint8_t { kPreparing, kAttaching, kConnecting, kReady, kDown };

  P2pRunner* runner = nullptr;  // owns this attachment
  PlanWorker worker;            // id, incarnation, endpoint
  std::size_t ordinal = 0;      // in the newest plan that uses it
  bool own = false;             // the gateway's own experts: no stream, no link
  bool dead = false;            // the coordinator has lost the worker (PlanUpdate::lost)
  // Sizes of its rings' slots, fixed for its whole life: where rows need larger ones, another
  // attachment to the same worker is made (epoch_binder.h).
  StagingBytes slot_bytes;
  State state = State::kDown;
  absl::Status down_why;     // of the last loss; stays while the next life is attached
  std::uint64_t serial = 0;  // of this life; never reused within a session
  Epoch attach_epoch;        // the epoch for which this life was attached
  // kDown: when the next life begins, and the pause that led there. Success resets it.
  TimePoint retry_at{};
  Duration backoff{};
  // One for each pair of slots; made anew with each life.
  CreditTable credits{0};
  std::unique_ptr<AttachEvents> sink;    // of `stream`, in this life
  std::unique_ptr<AttachStream> stream;  // attach, bind, release
  std::shared_ptr<LinkMemory> memory;    // kAttaching: of `link`, to meet the worker with
  AttachGrant grant;                     // kConnecting: while the worker's ring is mapped
  // Until kReady: what may become device_rings.
  std::shared_ptr<DeviceRings> rings_ahead;
  std::unique_ptr<Link> link;
  // They let the device of the session's tensors reach the link's two rings; null where it does
  // not, or has no use for that. They go before the link.
  std::unique_ptr<HostMapping> inbound_mapping;
  std::unique_ptr<HostMapping> outbound_mapping;
  // Where that device and the worker's have rows beside the link's rings, for frames with
  // kRowsOnDevice; null: they do not, and there are mappings where there can be.
  std::shared_ptr<DeviceRings> device_rings;
  AttachmentId peer_attachment;  // frames to the worker must carry it
  std::string reply_path;        // worker -> source, as the worker reads it back
  std::string why_reply_messages;
  std::string why_no_device;  // why device_rings is null, where it might not be

  // This source's own account of the attachment.
  std::uint64_t frames_sent = 0;
  std::uint64_t replies_late = 0;        // their steps had been given up
  std::uint64_t replies_unexpected = 0;  // second copies and wrong keys

  // The attachment that is the owner of `link`.
  static Attachment& Of(const Link& link) {
    return *static_cast<Attachment*>(static_cast<FrameSink*>(link.owner()));
  }

  // Both pass on to the runner.
  void OnFrame(Link& from, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override;
  void OnLinkDown(Link& from, const absl::Status& why) override;

  // Adds the counts of `ended`, which this attachment replaces.
  void AbsorbCounts(const Attachment& ended);
  // The device of the session's tensors writes rows to where the worker finds them, and sums the
  // replies where they lie.
  [[nodiscard]] bool device_reaches() const {
    return device_rings != nullptr || (inbound_mapping != nullptr && outbound_mapping != nullptr);
  }
  // Ends stream and link, which is of `transport`; credits of this life are gone with them.
  void Close(Transport* transport);
};

}  // namespace switchyard
