#include "worker/transport/sealed_blob.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(SealedBlobTest, OpensWhatItSealed) {
  const std::string bytes("an address with \0 in it", 23);

  const std::string sealed = SealBlob(BlobKind::kAddress, bytes);

  ASSERT_TRUE(OpenBlob(BlobKind::kAddress, sealed).has_value());
  EXPECT_EQ(*OpenBlob(BlobKind::kAddress, sealed), bytes);
  EXPECT_EQ(*OpenBlob(BlobKind::kRingKey, SealBlob(BlobKind::kRingKey, "")), "");
}

TEST(SealedBlobTest, RefusesEveryBitFlipCutAndOtherKind) {
  const std::string sealed = SealBlob(BlobKind::kRingKey, "an rkey, packed");

  EXPECT_FALSE(OpenBlob(BlobKind::kAddress, sealed).has_value());
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string bad = sealed;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(OpenBlob(BlobKind::kRingKey, bad).has_value()) << "bit " << bit;
  }
  for (std::size_t size = 0; size < sealed.size(); ++size) {
    EXPECT_FALSE(OpenBlob(BlobKind::kRingKey, sealed.substr(0, size)).has_value()) << size;
  }
}

// UCX itself would follow a damaged address or rkey wherever it leads.
TEST(SealedBlobTest, ALinkRefusesADamagedAddressAndDoesNotMapADamagedRkey) {
  testing::TransportPair pair(testing::kUcxShmCase);
  const auto peer = pair.MakeLink(*pair.b, 4, 4096);
  const auto refused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport);
  for (std::string RingOffer::*field : {&RingOffer::address, &RingOffer::rkey}) {
    RingOffer offer = peer->offer();
    (offer.*field)[9] = static_cast<char>((offer.*field)[9] ^ 4);
    const auto link = pair.MakeLink(*pair.a, 4, 4096);
    EXPECT_THAT(link->Connect(offer), refused);
    SY_EXPECT_OK(link->Connect(peer->offer())) << "a refused offer leaves the link usable";
  }
}

}  // namespace
}  // namespace switchyard
