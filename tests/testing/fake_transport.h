// A transport whose peers are in the test's hands: the test writes frames into a link's inbound
// ring as a source would, and reads replies where they were sent. Nothing is checked on the way in,
// so forged frames reach the sink under test. Thread-safe; Progress and Send allocate nothing.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "worker/transport/transport.h"

namespace switchyard::testing {

class FakeTransport;

class FakeLink final : public Link {
 public:
  FakeLink(FakeTransport* transport, const LinkOptions& made_with, std::uint32_t number);
  ~FakeLink() override { Close(); }

  [[nodiscard]] const RingOffer& offer() const override { return offer_; }
  absl::Status Connect(const RingOffer& to) override;
  [[nodiscard]] LinkPath path() const override { return LinkPath::kInProcess; }
  [[nodiscard]] std::span<std::byte> OutboundSlot(std::uint32_t slot) override {
    return std::span(outbound_).subspan(std::size_t{slot} * peer_.slot_bytes, peer_.slot_bytes);
  }
  absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) override;
  void Close() override;
  [[nodiscard]] std::string DebugString() const override { return "fake"; }

  LinkOptions options;
  absl::Status send_result;  // of every Send

 private:
  friend class FakeTransport;
  RingOffer offer_;
  RingOffer peer_;
  FakeTransport* transport_;
  std::vector<std::byte> inbound_;
  std::vector<std::byte> outbound_;
};

class FakeTransport final : public Transport {
 public:
  FakeTransport() {
    events_.reserve(4096);
    delivering_.reserve(4096);
    sent_.reserve(4096);
  }

  // CreateLink fails with `why` from now on.
  void FailLinks(absl::Status why) {
    const std::lock_guard lock(mutex_);
    no_links_ = std::move(why);
  }
  absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) override {
    const std::lock_guard lock(mutex_);
    if (!no_links_.ok()) return no_links_;
    auto link = std::make_unique<FakeLink>(this, options, ++last_number_);
    links_.push_back(link.get());
    stats_.ring_bytes += link->inbound_.size();
    return link;
  }
  bool Progress(FrameSink& sink) override {
    {
      const std::lock_guard lock(mutex_);
      delivering_.swap(events_);
    }
    const bool any = !delivering_.empty();
    for (const Event& event : delivering_) Tell(sink, event);
    delivering_.clear();
    return any;
  }
  bool Arm() override {
    const std::lock_guard lock(mutex_);
    return events_.empty();
  }
  void Wait(Duration max) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, max, [this] { return woken_ || !events_.empty(); });
    woken_ = false;
  }
  void Wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] std::shared_ptr<LinkMemory> MakeMemory(
      const LinkOptions& options_of_link) const override {
    return on_memory ? on_memory(options_of_link) : nullptr;
  }
  void CountDrop(FrameDrop drop) override {
    const std::lock_guard lock(mutex_);
    ++stats_.drops[static_cast<std::size_t>(drop)];
  }
  [[nodiscard]] MemoryKind slot_memory() const override { return MemoryKind::kHost; }
  [[nodiscard]] TransportStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  std::function<std::shared_ptr<LinkMemory>(const LinkOptions&)> on_memory;

  // The open link of that attachment number; nullptr when there is none.
  FakeLink* Find(AttachmentId number) {
    const std::lock_guard lock(mutex_);
    for (FakeLink* link : links_) {
      if (link->offer().attachment == number) return link;
    }
    return nullptr;
  }
  [[nodiscard]] std::size_t open_links() const {
    const std::lock_guard lock(mutex_);
    return links_.size();
  }

  // What a source does: `frame` (header and payload) lands in the link's inbound `slot`.
  void Deliver(FakeLink* link, std::uint32_t slot, std::span<const std::byte> frame) {
    const std::lock_guard lock(mutex_);
    if (std::find(links_.begin(), links_.end(), link) == links_.end()) return;
    std::memcpy(link->inbound_.data() + std::size_t{slot} * link->offer_.slot_bytes, frame.data(),
                std::min<std::size_t>(frame.size(), link->offer_.slot_bytes));
    events_.push_back({.link = link, .slot = slot, .frame_bytes = frame.size()});
    changed_.notify_all();
  }
  void Break(FakeLink* link) {
    const std::lock_guard lock(mutex_);
    events_.push_back({.link = link});
    changed_.notify_all();
  }

  // A copy of the oldest reply that was not taken yet; waits up to `limit` for one.
  struct Reply {
    AttachmentId sender;  // the link's number
    std::uint32_t slot = 0;
    std::vector<std::byte> frame;
  };
  std::optional<Reply> TakeReply(Duration limit = Duration::zero()) {
    std::unique_lock lock(mutex_);
    if (!replied_.wait_for(lock, limit, [this] { return taken_ < sent_.size(); })) {
      return std::nullopt;
    }
    const Sent& sent = sent_[taken_++];
    const auto begin = sent.link->outbound_.begin() +
                       static_cast<std::ptrdiff_t>(sent.slot * sent.link->peer_.slot_bytes);
    return Reply{sent.link->offer_.attachment,
                 sent.slot,
                 {begin, begin + static_cast<std::ptrdiff_t>(sent.bytes)}};
  }

  absl::Status connect_result;  // of every Connect

 private:
  friend class FakeLink;
  struct Event {
    FakeLink* link = nullptr;
    std::uint32_t slot = 0;
    std::size_t frame_bytes = 0;  // 0: the link breaks
  };
  struct Sent {
    FakeLink* link = nullptr;
    std::uint32_t slot = 0;
    std::size_t bytes = 0;
  };

  void Tell(FrameSink& sink, const Event& event) {
    {
      const std::lock_guard lock(mutex_);
      if (std::find(links_.begin(), links_.end(), event.link) == links_.end()) return;
    }
    if (event.frame_bytes == 0) {
      sink.OnLinkDown(*event.link, absl::UnavailableError("the peer is gone"));
      return;
    }
    const auto slot_memory =
        std::span(event.link->inbound_)
            .subspan(event.slot * std::size_t{event.link->offer_.slot_bytes},
                     std::min<std::size_t>(event.frame_bytes, event.link->offer_.slot_bytes));
    HeaderBytes raw;
    std::memcpy(raw.data(), slot_memory.data(), raw.size());
    FrameHeader header;
    if (DecodeHeader(raw, &header) != FrameDrop::kNone) return;
    sink.OnFrame(*event.link, raw, header, slot_memory.subspan(kFrameHeaderBytes));
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable replied_;
  bool woken_ = false;
  std::uint32_t last_number_ = 500;
  std::vector<FakeLink*> links_;
  absl::Status no_links_;
  std::vector<Event> events_;
  std::vector<Event> delivering_;
  std::vector<Sent> sent_;
  std::size_t taken_ = 0;
  TransportStats stats_;
};

inline FakeLink::FakeLink(FakeTransport* transport, const LinkOptions& made_with,
                          std::uint32_t number)
    : Link(made_with.owner), options(made_with), transport_(transport) {
  offer_.transport = "fake";
  offer_.attachment = AttachmentId{number};
  offer_.slots = made_with.slots;
  offer_.slot_bytes = made_with.slot_bytes;
  inbound_.resize(std::size_t{made_with.slots} * made_with.slot_bytes);
  offer_.ring_bytes = inbound_.size();
}

inline absl::Status FakeLink::Connect(const RingOffer& to) {
  peer_ = to;
  outbound_.assign(std::size_t{to.slots} * to.slot_bytes, std::byte{0xa5});
  return transport_->connect_result;
}

inline absl::Status FakeLink::Send(std::uint32_t slot, std::size_t frame_bytes) {
  if (!send_result.ok()) return send_result;
  const std::lock_guard lock(transport_->mutex_);
  transport_->sent_.push_back({.link = this, .slot = slot, .bytes = frame_bytes});
  transport_->replied_.notify_all();
  return absl::OkStatus();
}

inline void FakeLink::Close() {
  const std::lock_guard lock(transport_->mutex_);
  if (std::erase(transport_->links_, this) == 0) return;
  std::erase_if(transport_->events_, [this](const auto& event) { return event.link == this; });
  transport_->stats_.ring_bytes -= inbound_.size();
}

}  // namespace switchyard::testing
