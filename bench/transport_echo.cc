#include "bench/transport_echo.h"

#include <cstring>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "core/rng.h"
#include "worker/registry/transport_registry.h"
#include "worker/transport/frame.h"

namespace switchyard::bench {
namespace {

constexpr Cookie kCookie{0x5eedc00c1e5eedULL};
constexpr Duration kSleep = std::chrono::milliseconds(5);

}  // namespace

// One end. Its answer is as long as the request's first payload bytes ask.
class TransportEcho::Side final : public FrameSink {
 public:
  Side(const std::string& name, LoopbackHub* hub, std::size_t payload_max, Duration busy_poll,
       bool connects_first) {
    SystemRng rng;
    transport_ = OrExit(MakeTransport(name == "loopback" ? "loopback" : "ucx",
                                      {.incarnation = rng.NextId<Incarnation>(),
                                       .busy_poll = busy_poll,
                                       .hub = hub,
                                       .net_devices = "lo"}));
    TransportChoice choice = TransportChoice::kInProcess;
    TransportChoiceFromName(name == "loopback" ? "inproc" : name, &choice);
    link_ = OrExit(transport_->CreateLink(
        {.cookie = kCookie,
         .slots = 8,
         .slot_bytes = static_cast<std::uint32_t>(payload_max + kFrameHeaderBytes + kFrameAlign),
         .choice = choice,
         .connects_at_once = connects_first}));
    source_.resize(payload_max, std::byte{0x5a});
  }
  [[nodiscard]] Link& link() { return *link_; }
  [[nodiscard]] Transport& transport() { return *transport_; }

  void Connect(const RingOffer& peer) {
    OrExit(link_->Connect(peer));
    peer_ = peer.attachment;
  }
  void Send(FrameKind kind, std::uint32_t slot, std::size_t bytes, std::uint64_t answer_bytes) {
    const std::span<std::byte> out = link_->OutboundSlot(slot);
    FrameHeader header;
    header.kind = kind;
    header.cookie = kCookie;
    header.attachment = peer_;
    header.step = StepId{answer_bytes};
    header.request_slot = header.reply_slot = static_cast<std::uint16_t>(slot);
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    HeaderBytes raw;
    EncodeHeader(header, {}, &raw);
    std::memcpy(out.data(), raw.data(), raw.size());
    std::memcpy(out.data() + raw.size(), source_.data(), bytes);
    OrExit(link_->Send(slot, kFrameHeaderBytes + bytes));
  }
  template <typename Done>
  void Drive(Done done) {
    while (!done()) {
      if (!transport_->Progress(*this) && transport_->Arm()) transport_->Wait(kSleep);
    }
  }
  void OnFrame(Link& /*link*/, const HeaderBytes& /*raw*/, const FrameHeader& header,
               std::span<const std::byte> /*payload*/) override {
    ++frames_;
    if (header.kind == FrameKind::kRequest) {
      Send(FrameKind::kResult, header.reply_slot, header.step.value, 0);
    }
  }
  void OnLinkDown(Link& /*link*/, const absl::Status& why) override {
    if (frames_ == 0) OrExit(why);
  }
  [[nodiscard]] std::uint64_t frames() const { return frames_; }

 private:
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Link> link_;
  AttachmentId peer_;
  std::vector<std::byte> source_;
  std::uint64_t frames_ = 0;
};

TransportEcho::TransportEcho(const std::string& transport, std::size_t payload_max,
                             Duration busy_poll)
    : near_(std::make_unique<Side>(transport, &hub_, payload_max, busy_poll, false)),
      far_(std::make_unique<Side>(transport, &hub_, payload_max, busy_poll, true)) {
  far_->Connect(near_->link().offer());
  near_->Connect(far_->link().offer());
  thread_ = std::thread([this] { far_->Drive([this] { return stop_.load(); }); });
}

TransportEcho::~TransportEcho() {
  stop_ = true;
  far_->transport().Wake();
  thread_.join();
}

void TransportEcho::RoundTrip(std::size_t payload_bytes, std::size_t reply_bytes) {
  const std::uint64_t before = near_->frames();
  near_->Send(FrameKind::kRequest, static_cast<std::uint32_t>(before % 8), payload_bytes,
              reply_bytes);
  near_->Drive([&] { return near_->frames() > before; });
}

}  // namespace switchyard::bench
