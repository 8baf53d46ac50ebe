// Messages that no Link would send, sent by UCX directly: a receiver must drop and count them.
#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"
#include "worker/transport/doorbells.h"
#include "worker/transport/inbox.h"
#include "worker/transport/sealed_blob.h"
#include "worker/transport/ucx/context.h"
#include "worker/transport/ucx/outbox.h"

namespace switchyard {
namespace {

using testing::HeaderFor;
using testing::kUcxShmCase;
using testing::kUcxTcpCase;
using testing::RandomPayload;
using testing::TransportPair;

// An attacker on a peer's host who knows address and cookie.
class RawSender {
 public:
  explicit RawSender(const RingOffer& victim) : context_(UcxContext::Create({}).value()) {
    const absl::string_view address = *OpenBlob(BlobKind::kAddress, victim.address);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    EXPECT_EQ(ucp_ep_create(context_->sender(), &params, &endpoint_), UCS_OK);
  }
  ~RawSender() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucp_ep_close_nbx(endpoint_, &param);
    Progress();
  }

  // Keeps the header; `data` must stay until the victim has it.
  void Send(std::span<const std::byte> header, std::span<const std::byte> data,
            std::uint32_t flags = 0) {
    const std::vector<std::byte>& kept = headers_.emplace_back(header.begin(), header.end());
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint_, kFrameMessageId, kept.data(),
                                                     kept.size(), data.data(), data.size(), &param);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request != nullptr) ucp_request_free(request);
  }
  void Progress() {
    for (int i = 0; i < 100; ++i) ucp_worker_progress(context_->sender());
  }

 private:
  std::unique_ptr<UcxContext> context_;
  ucp_ep_h endpoint_ = nullptr;
  std::deque<std::vector<std::byte>> headers_;
};

std::vector<std::byte> PieceHeader(const RingOffer& victim, std::size_t payload_bytes,
                                   std::uint32_t offset) {
  HeaderBytes raw;
  EncodeHeader(HeaderFor(victim, FrameKind::kRequest, 1, payload_bytes), {}, &raw);
  std::vector<std::byte> header(raw.begin(), raw.end());
  header.resize(kPieceHeaderBytes);
  std::memcpy(header.data() + kFrameHeaderBytes, &offset, sizeof(offset));
  return header;
}

class ForgedMessageTest : public ::testing::Test {
 protected:
  explicit ForgedMessageTest(const testing::TransportCase& c = kUcxTcpCase)
      : pair_(c),
        let_in_(pair_.Join()),
        victim_(pair_.MakeLink(*pair_.b, 4, 256 * 1024)),
        sender_(victim_->offer()) {}

  // Drops of `reason` at the victim, after a message that makes exactly one.
  void ExpectOneMore(FrameDrop reason, const char* what) {
    const auto all = [&] {
      std::uint64_t sum = 0;
      for (const std::uint64_t count : pair_.b->stats().drops) sum += count;
      return sum;
    };
    ++expected_[static_cast<std::size_t>(reason)];
    ++expected_all_;
    ASSERT_TRUE(pair_.PumpUntil([&] {
      sender_.Progress();
      return all() >= expected_all_;
    })) << what;
    EXPECT_EQ(pair_.b->stats().drops, expected_) << what;
    EXPECT_TRUE(pair_.sink_b.frames.empty()) << what;
  }

  TransportPair pair_;
  // Its peer is on this host and has not connected yet, so the kernel lets the attacker in.
  testing::LinkPair let_in_;
  std::unique_ptr<Link> victim_;
  RawSender sender_;
  SeededRng rng_{5};
  std::array<std::uint64_t, kFrameDropCount> expected_{};
  std::uint64_t expected_all_ = 0;
};

TEST_F(ForgedMessageTest, CountsMessagesThatAreNoFrames) {
  const std::vector<std::byte> junk = RandomPayload(rng_, 4000);
  const std::span<const std::byte> bytes(junk);

  sender_.Send({}, {});
  ExpectOneMore(FrameDrop::kTruncated, "nothing at all");
  sender_.Send(bytes.first(63), {});
  ExpectOneMore(FrameDrop::kTruncated, "less than a header");
  sender_.Send(bytes.first(65), bytes);
  ExpectOneMore(FrameDrop::kTruncated, "a header of no known size");
  sender_.Send(bytes.first(64), {});
  ExpectOneMore(FrameDrop::kMagic, "a doorbell of junk");
  sender_.Send(bytes.first(72), bytes);
  ExpectOneMore(FrameDrop::kMagic, "a piece of junk");
}

TEST_F(ForgedMessageTest, CountsPiecesThatDoNotHoldWhatTheyClaim) {
  const std::vector<std::byte> data = RandomPayload(rng_, 200'000);
  const std::span<const std::byte> bytes(data);
  const RingOffer& offer = victim_->offer();

  sender_.Send(PieceHeader(offer, 1000, 0), bytes.first(999));
  ExpectOneMore(FrameDrop::kTruncated, "one byte too few");
  sender_.Send(PieceHeader(offer, 1000, 0), bytes.first(1001));
  ExpectOneMore(FrameDrop::kLength, "one byte too many");
  sender_.Send(PieceHeader(offer, 200'000, 0), bytes);
  ExpectOneMore(FrameDrop::kLength, "more than a piece");
  sender_.Send(PieceHeader(offer, 1000, 1001), {});
  ExpectOneMore(FrameDrop::kLength, "an offset beyond the end");
  sender_.Send(PieceHeader(offer, 200'000, kPieceBytes), bytes.first(200'000 - kPieceBytes));
  ExpectOneMore(FrameDrop::kTruncated, "a tail without its head");
  sender_.Send(std::span<const std::byte>(PieceHeader(offer, 1000, 0)).first(64), bytes.first(9));
  ExpectOneMore(FrameDrop::kLength, "a doorbell with data");
  sender_.Send(std::span<const std::byte>(PieceHeader(offer, 1000, 0)).first(64), {});
  ExpectOneMore(FrameDrop::kTruncated, "a doorbell for rows that nobody could have stored");
}

TEST_F(ForgedMessageTest, CountsGreetingsForNobodyAndIgnoresOthers) {
  const AttachmentId number = victim_->offer().attachment;
  const AttachmentId other{number.value + 1000};

  sender_.Send(EncodeGreeting(other, testing::kTestCookie), {});
  ExpectOneMore(FrameDrop::kAttachment, "a greeting for a link that does not exist");
  sender_.Send(EncodeGreeting(number, Cookie{1}), {});
  ExpectOneMore(FrameDrop::kCookie, "a greeting with another cookie");
  const std::vector<std::byte> data = RandomPayload(rng_, 9);
  sender_.Send(EncodeGreeting(number, testing::kTestCookie), data);
  ExpectOneMore(FrameDrop::kTruncated, "a greeting with data");
  // The victim waits for nobody.
  sender_.Send(EncodeGreeting(number, testing::kTestCookie), {});
  sender_.Send({}, {});
  ExpectOneMore(FrameDrop::kTruncated, "what comes after it");
}

TEST_F(ForgedMessageTest, RefusesARendezvous) {
  const std::vector<std::byte> data = RandomPayload(rng_, 200'000);

  sender_.Send(PieceHeader(victim_->offer(), 200'000, 0), data, UCP_AM_SEND_FLAG_RNDV);

  ExpectOneMore(FrameDrop::kLength, "a rendezvous");
  pair_.PumpUntilQuiet();
  EXPECT_EQ(pair_.b->stats().links_open, 2U);
}

class ForgedMessageToMappedRingTest : public ForgedMessageTest {
 protected:
  ForgedMessageToMappedRingTest() : ForgedMessageTest(kUcxShmCase) {}
};

// A peer that cannot map the ring falls back to messages, so a mapped ring takes both.
TEST_F(ForgedMessageToMappedRingTest, StillTakesMessages) {
  const std::vector<std::byte> data = RandomPayload(rng_, 1000);

  sender_.Send(PieceHeader(victim_->offer(), 1000, 0), data);

  ASSERT_TRUE(pair_.PumpUntil([&] {
    sender_.Progress();
    return pair_.sink_b.frames.size() == 1;
  }));
  EXPECT_EQ(pair_.sink_b.frames[0].payload, data);
}

// A peer has its doorbells and slots mapped, and can store anything there at any time.
TEST(ForgedDoorbellTest, WhateverAPeerStoresOtherLinksGoOn) {
  TransportPair pair(kUcxShmCase);
  SeededRng rng(20261124);
  testing::LinkPair hostile = pair.Join();
  testing::LinkPair healthy = pair.Join();
  const RingOffer& victim = hostile.b->offer();
  const std::span<std::byte> slots = hostile.a->outbound_memory();
  // They lie behind the slots, in the same mapping.
  const std::span<std::byte> bells(slots.data() + slots.size(), BellBytes(victim.slots));
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    std::ranges::copy(RandomPayload(rng, bells.size()), bells.begin());
    if (rng.Below(2) == 0) {
      HeaderBytes raw;
      const auto slot = static_cast<std::uint32_t>(rng.Below(victim.slots));
      EncodeHeader(HeaderFor(victim, FrameKind::kRequest, slot, rng.Below(8192)), {}, &raw);
      std::ranges::copy(raw, hostile.a->OutboundSlot(slot).begin());
    }
    const std::vector<std::byte> payload = RandomPayload(rng, 500);
    pair.sink_b.frames.clear();
    SY_ASSERT_OK(testing::SendFrame(
        *healthy.a, HeaderFor(healthy.b->offer(), FrameKind::kRequest, 1, 500), payload));
    const auto mine = [&] {
      return std::ranges::find(pair.sink_b.frames, healthy.b.get(),
                               [](const auto& frame) { return static_cast<Link*>(frame.link); });
    };
    ASSERT_TRUE(pair.PumpUntil([&] { return mine() != pair.sink_b.frames.end(); })) << round;
    EXPECT_EQ(mine()->payload, payload) << round;
    if (pair.b->Arm()) pair.b->Wait(Duration::zero());
  }
  EXPECT_TRUE(pair.sink_a.deaths.empty() && pair.sink_b.deaths.empty());
  EXPECT_EQ(pair.b->stats().links_open, 2U);
}

}  // namespace
}  // namespace switchyard
