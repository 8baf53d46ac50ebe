#include "tests/testing/transport_pair.h"

#include <algorithm>
#include <cstring>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard::testing {
namespace {

using SteadyTime = std::chrono::steady_clock;

}  // namespace

void RecordingSink::OnFrame(Link& link, const HeaderBytes& /*raw*/, const FrameHeader& header,
                            std::span<const std::byte> payload) {
  frames.push_back({&link, header, {payload.begin(), payload.end()}, payload});
  if (on_frame) on_frame(link, header);
}

void RecordingSink::OnLinkDown(Link& link, const absl::Status& why) {
  deaths.push_back({&link, why});
  if (on_link_down) on_link_down(link);
}

TransportPair::TransportPair(const TransportCase& c) : case_(c) {
  SystemRng rng;
  for (std::unique_ptr<Transport>* side : {&a, &b}) {
    auto made = MakeTransport(
        c.transport,
        {.incarnation = rng.NextId<Incarnation>(), .busy_poll = c.busy_poll, .hub = &hub});
    SY_EXPECT_OK(made);
    if (made.ok()) *side = std::move(made).value();
  }
}

std::unique_ptr<Link> TransportPair::MakeLink(Transport& side, std::uint32_t slots,
                                              std::uint32_t slot_bytes) {
  auto link = side.CreateLink({.cookie = kTestCookie,
                               .slots = slots,
                               .slot_bytes = slot_bytes,
                               .choice = case_.choice,
                               .connects_at_once = &side == a.get()});
  SY_EXPECT_OK(link);
  return link.ok() ? std::move(link).value() : nullptr;
}

LinkPair TransportPair::Join(const PairShape& shape) {
  LinkPair pair{MakeLink(*a, shape.slots, shape.a_slot_bytes),
                MakeLink(*b, shape.slots, shape.b_slot_bytes)};
  if (pair.a == nullptr || pair.b == nullptr) return {};
  SY_EXPECT_OK(pair.a->Connect(pair.b->offer()));
  SY_EXPECT_OK(pair.b->Connect(pair.a->offer()));
  return pair;
}

bool TransportPair::PumpUntil(const std::function<bool()>& done, std::chrono::milliseconds limit) {
  const auto end = SteadyTime::now() + limit;
  while (!done()) {
    if (SteadyTime::now() > end) return false;
    if (a != nullptr) a->Progress(sink_a);
    if (b != nullptr) b->Progress(sink_b);
  }
  return true;
}

void TransportPair::PumpUntilQuiet() {
  auto quiet_since = SteadyTime::now();
  while (SteadyTime::now() - quiet_since < std::chrono::milliseconds(30)) {
    const bool busy_a = a != nullptr && a->Progress(sink_a);
    const bool busy_b = b != nullptr && b->Progress(sink_b);
    if (busy_a || busy_b) quiet_since = SteadyTime::now();
  }
}

std::vector<std::byte> RandomPayload(Rng& rng, std::size_t bytes) {
  std::vector<std::byte> payload(bytes);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(1 + rng.Below(255));
  return payload;
}

FrameHeader HeaderFor(const RingOffer& receiver, FrameKind kind, std::uint32_t slot,
                      std::size_t payload_bytes) {
  FrameHeader header;
  header.kind = kind;
  header.cookie = kTestCookie;
  header.epoch.value = 3;
  header.step.value = 17;
  header.attachment = receiver.attachment;
  header.request_slot = static_cast<std::uint16_t>(slot);
  header.reply_slot = static_cast<std::uint16_t>(slot);
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  return header;
}

absl::Status SendFrame(Link& link, const FrameHeader& header, std::span<const std::byte> payload) {
  const std::uint32_t slot =
      header.kind == FrameKind::kRequest ? header.request_slot : header.reply_slot;
  const std::span<std::byte> out = link.OutboundSlot(slot);
  HeaderBytes bytes;
  EncodeHeader(header, {}, &bytes);
  std::ranges::copy(bytes, out.begin());
  std::ranges::copy(payload, out.begin() + kFrameHeaderBytes);
  return link.Send(slot, kFrameHeaderBytes + payload.size());
}

}  // namespace switchyard::testing
