#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"
#include "worker/transport/loopback/transport.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::HeaderFor;
using testing::kLoopbackCase;
using testing::LinkPair;
using testing::SendFrame;
using testing::TransportPair;

TEST(LoopbackTest, AKilledTransportGoesSilentAndItsPeersAreTold) {
  TransportPair pair(kLoopbackCase);
  LinkPair first = pair.Join();
  LinkPair second = pair.Join();
  SY_ASSERT_OK(SendFrame(*first.b, HeaderFor(first.a->offer(), FrameKind::kResult, 0, 0), {}));

  pair.hub.Kill(first.b->offer().address);
  pair.hub.Kill("loopback-999");
  pair.PumpUntilQuiet();

  EXPECT_EQ(pair.sink_a.frames.size(), 1U) << "what was sent before the death arrives";
  EXPECT_EQ(pair.sink_a.deaths.size(), 2U);
  EXPECT_TRUE(pair.sink_b.deaths.empty());
  const auto lost = FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost);
  EXPECT_THAT(first.a->Send(0, 64), lost);
  EXPECT_THAT(second.b->Send(0, 64), lost) << "the dead one does not send";
  const auto late = pair.MakeLink(*pair.a, 4, 4096);
  EXPECT_THAT(late->Connect(second.b->offer()),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kTransport));
}

TEST(LoopbackTest, RefusesAnOfferOfARingThatIsGoneOrOfAnotherSize) {
  TransportPair pair(kLoopbackCase);
  auto peer = pair.MakeLink(*pair.b, 4, 4096);
  RingOffer offer = peer->offer();
  const auto link = pair.MakeLink(*pair.a, 4, 4096);

  offer.slot_bytes = 8192;
  offer.ring_bytes = 4 * 8192;
  EXPECT_THAT(link->Connect(offer),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  offer = peer->offer();
  peer->Close();
  EXPECT_THAT(link->Connect(offer), FailsWith(absl::StatusCode::kUnavailable, Reason::kTransport));
}

TEST(LoopbackTest, CountsDoorbellsBeyondWhatItsRingsCanHold) {
  TransportPair pair(kLoopbackCase);
  LinkPair links = pair.Join({2, 128, 128});
  constexpr int kFlood = 50;
  for (int i = 0; i < kFlood; ++i) {
    SY_ASSERT_OK(
        SendFrame(*links.a, HeaderFor(links.b->offer(), FrameKind::kRequest, i % 2U, 0), {}));
  }

  pair.PumpUntilQuiet();

  EXPECT_EQ(pair.sink_b.frames.size(), 2U);
  EXPECT_EQ(pair.b->stats().drops[static_cast<std::size_t>(FrameDrop::kSlot)], kFlood - 2U);
}

TEST(LoopbackTest, NeedsAHubAndRefusesUcxChoices) {
  EXPECT_THAT(LoopbackTransport::Create({}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  TransportPair pair(kLoopbackCase);
  for (const TransportChoice choice : {TransportChoice::kShm, TransportChoice::kTcp}) {
    EXPECT_THAT(pair.a->CreateLink({.slots = 1, .slot_bytes = 64, .choice = choice}),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  }
}

}  // namespace
}  // namespace switchyard
