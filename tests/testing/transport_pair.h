// Two transports joined by links, and a sink that remembers: what the transport tests stand on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <vector>

#include "core/rng.h"
#include "core/session_messages.h"
#include "worker/registry/transport_registry.h"
#include "worker/transport/frame.h"
#include "worker/transport/loopback/hub.h"
#include "worker/transport/transport.h"

namespace switchyard::testing {

// One implementation in one of its ways to travel.
struct TransportCase {
  const char* name;
  const char* transport;
  TransportChoice choice;
  LinkPath path;
  Duration busy_poll{};
  friend void PrintTo(const TransportCase& c, std::ostream* out) { *out << c.name; }
};

inline constexpr TransportCase kLoopbackCase = {"loopback", "loopback", TransportChoice::kInProcess,
                                                LinkPath::kInProcess};
inline constexpr TransportCase kUcxShmCase = {"ucx_shm", "ucx", TransportChoice::kShm,
                                              LinkPath::kMapped};
inline constexpr TransportCase kUcxTcpCase = {"ucx_tcp", "ucx", TransportChoice::kTcp,
                                              LinkPath::kMessages};

inline constexpr TransportCase kLoopbackPollingCase = {
    "loopback_polling", "loopback", TransportChoice::kInProcess, LinkPath::kInProcess,
    std::chrono::milliseconds(2)};
inline constexpr TransportCase kUcxShmPollingCase = {"ucx_shm_polling", "ucx",
                                                     TransportChoice::kShm, LinkPath::kMapped,
                                                     std::chrono::milliseconds(2)};

// Keeps every frame and every death. The hooks run after the record was made.
class RecordingSink final : public FrameSink {
 public:
  struct Frame {
    Link* link = nullptr;
    FrameHeader header;
    std::vector<std::byte> payload;
    std::span<const std::byte> place;  // where it landed; valid as OnFrame's payload is
  };
  struct Death {
    Link* link = nullptr;
    absl::Status why;
  };

  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override;
  void OnLinkDown(Link& link, const absl::Status& why) override;

  std::vector<Frame> frames;
  std::vector<Death> deaths;
  std::function<void(Link&, const FrameHeader&)> on_frame;
  std::function<void(Link&)> on_link_down;
};

struct LinkPair {
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
};

struct PairShape {
  std::uint32_t slots = 4;
  std::uint32_t a_slot_bytes = 4096;  // of the ring that a owns
  std::uint32_t b_slot_bytes = 4096;
};

// Sides a and b in one process, driven by the test's thread. A link of a is connected before its
// peer's, as a worker's before the source's.
class TransportPair {
 public:
  explicit TransportPair(const TransportCase& c);

  // Fails the test and returns null links when the transport cannot.
  LinkPair Join(const PairShape& shape = {});
  std::unique_ptr<Link> MakeLink(Transport& side, std::uint32_t slots, std::uint32_t slot_bytes);

  // Progress on both sides until `done`; false when that takes longer than `limit`.
  bool PumpUntil(const std::function<bool()>& done,
                 std::chrono::milliseconds limit = std::chrono::seconds(5));
  // Progress on both sides until neither has had work for a while, to show that nothing comes.
  void PumpUntilQuiet();

  const TransportCase& test_case() const { return case_; }

  LoopbackHub hub;
  RecordingSink sink_a;
  RecordingSink sink_b;
  std::unique_ptr<Transport> a;
  std::unique_ptr<Transport> b;

 private:
  const TransportCase case_;
};

inline constexpr Cookie kTestCookie{0x5eedc00c1e5eedULL};

// Random payload bytes, never zeros.
std::vector<std::byte> RandomPayload(Rng& rng, std::size_t bytes);

// A header that passes the guards of the link that `receiver` offers.
FrameHeader HeaderFor(const RingOffer& receiver, FrameKind kind, std::uint32_t slot,
                      std::size_t payload_bytes);

// Writes header and payload into OutboundSlot(slot) and sends them.
absl::Status SendFrame(Link& link, const FrameHeader& header, std::span<const std::byte> payload);

}  // namespace switchyard::testing
