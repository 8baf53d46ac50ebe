// A source's surroundings under a test's control: a transport whose links end in the test's hands,
// a channel whose answers the test gives, and workers that answer rows by a rule that is easy to
// check.
//
// Expert e of a scripted worker turns x into (e + 1) * x, so a wrong, lost or doubled row changes
// the sum. Single-threaded.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/format/bf16.h"
#include "core/plan.h"
#include "worker/source/session_channel.h"
#include "worker/transport/transport.h"

namespace switchyard::testing {

class ScriptedLink;

// The memory of a link of a ScriptedTransport that makes some.
struct ScriptedMemory final : LinkMemory {
  void Meet(const RingOffer& peer) override { met.push_back(peer.attachment); }
  std::vector<AttachmentId> met;
};

class ScriptedTransport final : public Transport {
 public:
  absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) override;
  bool Progress(FrameSink& sink) override;
  bool Arm() override { return pending_.empty(); }
  void Wait(Duration /*max*/) override {}
  void Wake() override { ++wakes; }
  void CountDrop(FrameDrop drop) override { ++stats_.drops[static_cast<std::size_t>(drop)]; }
  [[nodiscard]] MemoryKind slot_memory() const override { return MemoryKind::kHost; }
  [[nodiscard]] TransportStats stats() const override { return stats_; }
  [[nodiscard]] std::shared_ptr<LinkMemory> MakeMemory(const LinkOptions&) const override {
    return std::make_shared<ScriptedMemory>();
  }
  bool RunAside(std::function<void()> work) override {
    if (makes_memory) aside.push_back(std::move(work));
    return makes_memory;
  }
  // The oldest work that waits aside. False if there is none.
  bool RunOneAside() {
    if (aside.empty()) return false;
    const std::function<void()> work = std::move(aside.front());
    aside.pop_front();
    work();
    return true;
  }

  bool makes_memory = false;
  std::deque<std::function<void()>> aside;
  // The links that are open, in order of creation.
  std::vector<ScriptedLink*> links;
  // Bytes that the next Progress delivers on `link`, as they are.
  void Deliver(ScriptedLink* link, std::vector<std::byte> frame);
  void BreakLink(ScriptedLink* link);
  int wakes = 0;

 private:
  friend class ScriptedLink;
  struct Pending {
    ScriptedLink* link = nullptr;
    std::vector<std::byte> frame;  // empty: the link breaks
  };
  std::deque<Pending> pending_;
  std::vector<std::vector<std::byte>> delivered_;  // stay readable until the link closes
  TransportStats stats_;
  std::uint32_t next_attachment_ = 100;
};

class ScriptedLink final : public Link {
 public:
  ScriptedLink(ScriptedTransport* transport, const LinkOptions& options, std::uint32_t attachment);
  ~ScriptedLink() override { Close(); }

  [[nodiscard]] const RingOffer& offer() const override { return offer_; }
  absl::Status Connect(const RingOffer& peer) override;
  [[nodiscard]] LinkPath path() const override { return LinkPath::kInProcess; }
  [[nodiscard]] std::span<std::byte> OutboundSlot(std::uint32_t slot) override;
  absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) override;
  void Close() override;
  [[nodiscard]] std::string DebugString() const override { return "scripted"; }

  struct Sent {
    std::uint32_t slot = 0;
    std::vector<std::byte> frame;
  };
  const std::shared_ptr<ScriptedMemory> made_with;  // its memory, if it was created with some
  std::deque<Sent> sent;                            // not looked at yet
  absl::Status connect_result;
  absl::Status send_result;
  std::vector<std::vector<std::byte>> inbound;  // by slot: where replies lie

 private:
  ScriptedTransport* transport_;
  RingOffer offer_;
  std::vector<std::vector<std::byte>> outbound_;
};

// A request as the worker reads it.
struct ReadRequest {
  FrameHeader header;
  std::vector<std::byte> metadata;
  const Bf16* rows = nullptr;  // in the frame that it was read from
};
ReadRequest ReadFrame(const std::vector<std::byte>& frame, const Plan& plan, std::int32_t ordinal);

// The result frame of expert rule (e + 1) * x for `frame`, sent to worker `ordinal` of `plan`.
std::vector<std::byte> AnswerFrame(const std::vector<std::byte>& frame, const Plan& plan,
                                   std::int32_t ordinal, const RingOffer& reply_ring);
std::vector<std::byte> ErrorFrameFor(const std::vector<std::byte>& frame, const ErrorBody& body,
                                     const RingOffer& reply_ring, const Incarnation& sender);

class ScriptedChannel final : public SessionChannel {
 public:
  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& order,
                                           Duration timeout) override;
  absl::Status CloseSession(SessionId session, Duration timeout) override;
  std::unique_ptr<WatchStream> Watch(const WatchRequest& order, WatchSink* sink) override;
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& order,
                                       AttachSink* sink) override;
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override;
  absl::StatusOr<SessionCounters> counters = SessionCounters{};  // of every worker

  struct Stream {
    std::string endpoint;
    AttachRequest order;
    AttachSink* sink = nullptr;
    bool open = true;
    std::vector<BindRequest> binds;
    std::vector<Epoch> released;
  };
  absl::StatusOr<SessionGrant> grant;
  std::vector<std::shared_ptr<Stream>> streams;  // every Attach ever made
  std::vector<WatchRequest> watches;
  WatchSink* watch_sink = nullptr;  // of the open watch
  std::vector<SessionId> closed;

  // The newest open stream to `endpoint`; nullptr when there is none.
  std::shared_ptr<Stream> Open(const std::string& endpoint) const;
};

// Answers an Attach as a worker of `incarnation` would.
AttachGrant GrantFor(const AttachRequest& order, Incarnation incarnation, std::uint32_t attachment);

}  // namespace switchyard::testing
