// The guards and the landing of pieces; whole transports are in tests/conformance.
#include "worker/transport/inbox.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/transport_pair.h"

namespace switchyard {
namespace {

using testing::HeaderFor;
using testing::kTestCookie;
using testing::RandomPayload;
using testing::RecordingSink;

constexpr std::uint64_t kSeed = 77;
constexpr std::uint32_t kSlots = 3;
constexpr std::uint32_t kSlotBytes = 256 * 1024;

// A link that only stands for itself.
class NamedLink final : public Link {
 public:
  NamedLink() : Link(nullptr) {}
  [[nodiscard]] const RingOffer& offer() const override { return offer_; }
  absl::Status Connect(const RingOffer&) override { return absl::OkStatus(); }
  [[nodiscard]] LinkPath path() const override { return LinkPath::kNone; }
  [[nodiscard]] std::span<std::byte> OutboundSlot(std::uint32_t) override { return {}; }
  absl::Status Send(std::uint32_t, std::size_t) override { return absl::OkStatus(); }
  void Close() override {}
  [[nodiscard]] std::string DebugString() const override { return ""; }

 private:
  RingOffer offer_;
};

class InboxTest : public ::testing::Test {
 protected:
  InboxTest() : memory_(kSlots * kSlotBytes, std::byte{0xee}), rng_(kSeed) {
    offer_.attachment = inbox_.Add(&link_, {.cookie = kTestCookie,
                                            .slots = kSlots,
                                            .slot_bytes = kSlotBytes,
                                            .memory = memory_,
                                            .mapped = false});
  }

  HeaderBytes Header(std::uint32_t slot, std::size_t payload_bytes, std::uint64_t step = 1) const {
    FrameHeader header = HeaderFor(offer_, FrameKind::kRequest, slot, payload_bytes);
    header.step.value = step;
    HeaderBytes bytes;
    EncodeHeader(header, {}, &bytes);
    return bytes;
  }
  void Piece(const HeaderBytes& header, std::size_t offset, std::span<const std::byte> payload,
             std::size_t bytes) {
    inbox_.OnPiece(header, static_cast<std::uint32_t>(offset), payload.subspan(offset, bytes));
  }
  std::uint64_t Drops(FrameDrop drop) const {
    return inbox_.drops()[static_cast<std::size_t>(drop)];
  }

  std::vector<std::byte> memory_;
  SeededRng rng_;
  NamedLink link_;
  RingOffer offer_;
  Inbox inbox_;
  RecordingSink sink_;
};

TEST_F(InboxTest, LandsPiecesAndTellsOnlyTheWholeFrame) {
  const std::vector<std::byte> payload = RandomPayload(rng_, 2 * kPieceBytes + 100);
  const HeaderBytes header = Header(1, payload.size());

  Piece(header, 0, payload, kPieceBytes);
  Piece(header, kPieceBytes, payload, kPieceBytes);
  EXPECT_FALSE(inbox_.Deliver(sink_)) << "told before it was whole";
  Piece(header, 2 * kPieceBytes, payload, 100);

  EXPECT_TRUE(inbox_.Deliver(sink_));
  ASSERT_EQ(sink_.frames.size(), 1U);
  EXPECT_EQ(sink_.frames[0].link, &link_);
  EXPECT_TRUE(sink_.frames[0].payload == payload);
  const auto landed = std::span(memory_).subspan(kSlotBytes + kFrameHeaderBytes);
  EXPECT_TRUE(std::ranges::equal(landed.first(payload.size()), payload));
  EXPECT_EQ(landed[payload.size()], std::byte{0xee});
  EXPECT_EQ(memory_[kSlotBytes - 1], std::byte{0xee});
  EXPECT_EQ(inbox_.frames_in(), 1U);
}

TEST_F(InboxTest, InterleavesPiecesOfDifferentSlots) {
  const std::vector<std::byte> first = RandomPayload(rng_, kPieceBytes + 1);
  const std::vector<std::byte> second = RandomPayload(rng_, kPieceBytes + 2);

  Piece(Header(0, first.size()), 0, first, kPieceBytes);
  Piece(Header(2, second.size()), 0, second, kPieceBytes);
  Piece(Header(2, second.size()), kPieceBytes, second, 2);
  Piece(Header(0, first.size()), kPieceBytes, first, 1);
  inbox_.Deliver(sink_);

  ASSERT_EQ(sink_.frames.size(), 2U);
  EXPECT_TRUE(sink_.frames[0].payload == second);
  EXPECT_TRUE(sink_.frames[1].payload == first);
}

TEST_F(InboxTest, DropsPiecesOfTheWrongSizeOrOrder) {
  const std::vector<std::byte> payload = RandomPayload(rng_, 3 * kPieceBytes);
  const HeaderBytes header = Header(0, 2 * kPieceBytes + 10);

  Piece(header, 0, payload, kPieceBytes - 1);
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 1U) << "a first piece cut short";
  Piece(header, 0, payload, kPieceBytes + 1);
  EXPECT_EQ(Drops(FrameDrop::kLength), 1U) << "a piece too long";
  Piece(header, kPieceBytes, payload, kPieceBytes);
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 2U) << "a second piece without a first";
  inbox_.OnPiece(header, 2 * kPieceBytes + 11, {});
  EXPECT_EQ(Drops(FrameDrop::kLength), 2U) << "a piece beyond the end";
  Piece(header, 0, payload, kPieceBytes);
  Piece(header, 2 * kPieceBytes, payload, 10);
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 3U) << "a piece was left out";
  Piece(header, kPieceBytes, payload, kPieceBytes);
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 4U) << "what follows is lost too";

  EXPECT_FALSE(inbox_.Deliver(sink_));
}

TEST_F(InboxTest, AGreetingFindsTheLinkThatItNames) {
  const GreetingBytes right = EncodeGreeting(offer_.attachment, kTestCookie);
  EXPECT_EQ(inbox_.OnGreeting(right), &link_);

  EXPECT_EQ(inbox_.OnGreeting(EncodeGreeting(AttachmentId{99}, kTestCookie)), nullptr);
  EXPECT_EQ(Drops(FrameDrop::kAttachment), 1U);
  EXPECT_EQ(inbox_.OnGreeting(EncodeGreeting(offer_.attachment, Cookie{1})), nullptr);
  EXPECT_EQ(Drops(FrameDrop::kCookie), 1U);
  EXPECT_EQ(inbox_.OnGreeting(std::span(right).first(kGreetingBytes - 1)), nullptr);
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 1U);
  EXPECT_FALSE(inbox_.Deliver(sink_)) << "a greeting is no frame";
}

TEST_F(InboxTest, AFrameThatNeverBecameWholeGivesWayToTheNext) {
  const std::vector<std::byte> payload = RandomPayload(rng_, 2 * kPieceBytes);
  Piece(Header(0, payload.size(), /*step=*/1), 0, payload, kPieceBytes);

  Piece(Header(0, payload.size(), /*step=*/2), 0, payload, kPieceBytes);
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 1U);
  Piece(Header(0, payload.size(), /*step=*/2), kPieceBytes, payload, kPieceBytes);
  inbox_.Deliver(sink_);

  ASSERT_EQ(sink_.frames.size(), 1U);
  EXPECT_EQ(sink_.frames[0].header.step.value, 2U);
}

TEST_F(InboxTest, NeverMixesTheHeadersOfTwoFrames) {
  const std::vector<std::byte> payload = RandomPayload(rng_, 2 * kPieceBytes);
  Piece(Header(0, payload.size(), /*step=*/1), 0, payload, kPieceBytes);

  Piece(Header(0, payload.size(), /*step=*/2), kPieceBytes, payload, kPieceBytes);

  EXPECT_FALSE(inbox_.Deliver(sink_));
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 1U);
}

TEST_F(InboxTest, DropsADoorbellWithPayloadWhereThePeerCannotHaveWrittenIt) {
  inbox_.OnDoorbell(Header(0, 64));
  EXPECT_EQ(Drops(FrameDrop::kTruncated), 1U);
  EXPECT_FALSE(inbox_.HasReady());

  inbox_.OnDoorbell(Header(0, 0));
  EXPECT_TRUE(inbox_.HasReady());
}

TEST_F(InboxTest, DropsASecondFrameUntilTheFirstWasTaken) {
  const std::vector<std::byte> first = RandomPayload(rng_, 500);
  const std::vector<std::byte> second = RandomPayload(rng_, 500);
  Piece(Header(1, 500), 0, first, 500);

  Piece(Header(1, 500), 0, second, 500);

  EXPECT_EQ(Drops(FrameDrop::kSlot), 1U);
  inbox_.Deliver(sink_);
  ASSERT_EQ(sink_.frames.size(), 1U);
  EXPECT_EQ(sink_.frames[0].payload, first) << "the dropped frame overwrote the one before it";
  Piece(Header(1, 500), 0, second, 500);
  inbox_.Deliver(sink_);
  EXPECT_EQ(sink_.frames.back().payload, second);
}

TEST_F(InboxTest, ForgetsWhatWasQueuedForARemovedRing) {
  NamedLink other;
  std::vector<std::byte> other_memory(2 * 128);
  RingOffer other_offer;
  other_offer.attachment = inbox_.Add(&other, {.cookie = kTestCookie,
                                               .slots = 2,
                                               .slot_bytes = 128,
                                               .memory = other_memory,
                                               .mapped = true});
  const auto ring = [&](const RingOffer& offer, std::uint32_t slot) {
    HeaderBytes bytes;
    EncodeHeader(HeaderFor(offer, FrameKind::kResult, slot, 0), {}, &bytes);
    inbox_.OnDoorbell(bytes);
  };
  ring(offer_, 0);
  ring(other_offer, 1);
  ring(offer_, 2);
  ring(other_offer, 0);

  inbox_.Remove(offer_.attachment);
  ring(offer_, 1);
  ring(other_offer, 0);
  inbox_.Deliver(sink_);

  EXPECT_EQ(Drops(FrameDrop::kAttachment), 1U);
  EXPECT_EQ(Drops(FrameDrop::kSlot), 1U) << "slot 0 of the other ring was still queued";
  ASSERT_EQ(sink_.frames.size(), 2U);
  EXPECT_EQ(sink_.frames[0].header.reply_slot, 1);
  EXPECT_EQ(sink_.frames[1].header.reply_slot, 0);
  // The queue's end was moved back properly: it takes more.
  ring(other_offer, 1);
  inbox_.Remove(AttachmentId{999});
  EXPECT_TRUE(inbox_.Deliver(sink_));
  EXPECT_EQ(sink_.frames.size(), 3U);
}

TEST_F(InboxTest, SurvivesRandomBytes) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  for (int round = 0; round < 20'000; ++round) {
    HeaderBytes header = Header(static_cast<std::uint32_t>(rng_.Below(kSlots)), rng_.Below(70'000));
    for (std::uint64_t damage = rng_.Below(4); damage > 0; --damage) {
      header[rng_.Below(header.size())] = static_cast<std::byte>(rng_.Next());
    }
    const std::vector<std::byte> payload = RandomPayload(rng_, rng_.Below(300));
    const auto cut = static_cast<std::size_t>(rng_.Below(kFrameHeaderBytes + 1));
    switch (rng_.Below(4)) {
      case 0:
        inbox_.OnDoorbell(std::span(header).first(cut));
        break;
      case 1:
        inbox_.OnDoorbell(header);
        break;
      case 2:
        inbox_.OnPiece(header, static_cast<std::uint32_t>(rng_.Next()), payload);
        break;
      default:
        inbox_.OnPiece(header, 0, payload);
    }
    if (rng_.Below(10) == 0) inbox_.Deliver(sink_);
  }

  std::uint64_t drops = 0;
  for (const std::uint64_t count : inbox_.drops()) drops += count;
  EXPECT_GT(drops, 10'000U);
}

// A mapped ring: frames lie in memory_, header and all.
class InboxRungTest : public InboxTest {
 protected:
  InboxRungTest() {
    inbox_.Remove(offer_.attachment);
    offer_.attachment = inbox_.Add(&link_, {.cookie = kTestCookie,
                                            .slots = kSlots,
                                            .slot_bytes = kSlotBytes,
                                            .memory = memory_,
                                            .mapped = true});
  }
  void Write(std::uint32_t slot, const HeaderBytes& header, std::span<const std::byte> payload) {
    const auto at = memory_.begin() + static_cast<std::ptrdiff_t>(slot) * kSlotBytes;
    std::ranges::copy(payload, std::ranges::copy(header, at).out);
  }
};

TEST_F(InboxRungTest, TellsFramesInTheOrderOfTheirDoorbells) {
  const std::vector<std::byte> payload = RandomPayload(rng_, 1000);
  for (const std::uint32_t slot : {2U, 0U}) Write(slot, Header(slot, 1000, 7 + slot), payload);

  inbox_.OnRung(offer_.attachment, 2);
  inbox_.OnRung(offer_.attachment, 0);

  ASSERT_TRUE(inbox_.Deliver(sink_));
  ASSERT_EQ(sink_.frames.size(), 2U);
  EXPECT_EQ(sink_.frames[0].header.step.value, 9U);
  EXPECT_EQ(sink_.frames[1].header.step.value, 7U);
  EXPECT_EQ(sink_.frames[1].payload, payload);
}

TEST_F(InboxRungTest, DropsDoorbellsWithoutAFrameOfTheirSlot) {
  Write(0, Header(1, 0), {});
  Write(1, Header(1, 0), {});
  FrameHeader foreign = HeaderFor(offer_, FrameKind::kRequest, 2, 0);
  foreign.attachment.value += 1;
  HeaderBytes bytes;
  EncodeHeader(foreign, {}, &bytes);
  Write(2, bytes, {});

  inbox_.OnRung(offer_.attachment, 0);
  EXPECT_EQ(Drops(FrameDrop::kSlot), 1U) << "the header names another slot";
  inbox_.OnRung(offer_.attachment, kSlots);
  inbox_.OnRung(offer_.attachment, 0xffffffffU);
  EXPECT_EQ(Drops(FrameDrop::kSlot), 3U) << "there is no such slot";
  inbox_.OnRung(offer_.attachment, 2);
  EXPECT_EQ(Drops(FrameDrop::kAttachment), 1U) << "the header names another ring";
  inbox_.OnRung(foreign.attachment, 0);
  EXPECT_EQ(Drops(FrameDrop::kAttachment), 2U) << "there is no such ring";
  EXPECT_FALSE(inbox_.HasReady());

  inbox_.OnRung(offer_.attachment, 1);
  inbox_.OnRung(offer_.attachment, 1);
  EXPECT_EQ(Drops(FrameDrop::kSlot), 4U) << "rung again before it was told";
  ASSERT_TRUE(inbox_.Deliver(sink_));
  EXPECT_EQ(sink_.frames.size(), 1U);
}

TEST_F(InboxRungTest, DropsTheDoorbellsOfAnotherRingsFrame) {
  std::vector<std::byte> other_memory(memory_.size());
  RingOffer other;
  other.attachment = inbox_.Add(&link_, {.cookie = kTestCookie,
                                         .slots = kSlots,
                                         .slot_bytes = kSlotBytes,
                                         .memory = other_memory,
                                         .mapped = true});
  HeaderBytes bytes;
  EncodeHeader(HeaderFor(other, FrameKind::kRequest, 1, 0), {}, &bytes);
  Write(1, bytes, {});

  inbox_.OnRung(offer_.attachment, 1);

  EXPECT_EQ(Drops(FrameDrop::kSlot), 1U);
  EXPECT_FALSE(inbox_.HasReady()) << "one ring rang a frame of another";
}

TEST_F(InboxRungTest, DropsADoorbellThatComesAgainWhenTheNextFrameIsInItsSlot) {
  const std::vector<std::byte> payload = RandomPayload(rng_, 100);
  const HeaderBytes first = Header(1, 100, 7);
  Write(1, first, payload);
  inbox_.OnDoorbell(first);
  ASSERT_TRUE(inbox_.Deliver(sink_));

  Write(1, Header(1, 100, 8), payload);
  inbox_.OnDoorbell(first);

  EXPECT_EQ(Drops(FrameDrop::kSlot), 1U);
  EXPECT_FALSE(inbox_.HasReady()) << "the former header would be read with the next payload";
  inbox_.OnDoorbell(Header(1, 100, 8));
  EXPECT_TRUE(inbox_.HasReady());
}

TEST(InboxDeathTest, ARingWithLessMemoryThanItsSlotsEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Inbox inbox;
  std::vector<std::byte> memory(2 * 128 - 1);
  Inbox::Ring ring;
  ring.slots = 2;
  ring.slot_bytes = 128;
  ring.memory = memory;

  EXPECT_DEATH(inbox.Add(nullptr, ring), "less memory than its slots take");
}

}  // namespace
}  // namespace switchyard
