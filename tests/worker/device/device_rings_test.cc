#include "worker/device/device_rings.h"

#include <cstring>

#include "gtest/gtest.h"

#include "tests/testing/late_device.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::LateDevice;

constexpr std::uint32_t kSlots = 3;
constexpr std::uint32_t kSlotBytes = 256;

RingOffer OfferOf(std::uint32_t slots = kSlots, std::uint32_t slot_bytes = kSlotBytes) {
  RingOffer offer;
  offer.slots = slots;
  offer.slot_bytes = slot_bytes;
  offer.ring_bytes = std::uint64_t{slots} * slot_bytes;
  return offer;
}

class DeviceRingsTest : public ::testing::Test {
 protected:
  static std::unique_ptr<LateDevice> MakeDevice() {
    // Of host memory, so that the test sees what is written.
    return *LateDevice::Create({.host_access = true, .shares = true});
  }
  const std::unique_ptr<LateDevice> one_ = MakeDevice();
  const std::unique_ptr<LateDevice> other_ = MakeDevice();
};

TEST_F(DeviceRingsTest, WhatOneSideWritesIntoASlotLiesInTheOthers) {
  RingOffer of_one = OfferOf();
  RingOffer of_other = OfferOf(kSlots, 2 * kSlotBytes);
  SY_ASSERT_OK_AND_ASSIGN(const auto one, DeviceRings::Make(one_.get(), of_one.ring_bytes));
  SY_ASSERT_OK_AND_ASSIGN(const auto other, DeviceRings::Make(other_.get(), of_other.ring_bytes));
  one->Offer(&of_one);
  other->Offer(&of_other);
  EXPECT_FALSE(one->met());

  SY_ASSERT_OK(one->Meet(one_.get(), of_other));
  SY_ASSERT_OK(other->Meet(other_.get(), of_one));

  EXPECT_TRUE(one->met());
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const int byte = static_cast<int>(slot) + 1;
    std::memset(one->outbound(slot), byte, 2 * kSlotBytes);
    std::memset(other->outbound(slot), 16 * byte, kSlotBytes);
  }
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::byte byte{static_cast<unsigned char>(slot + 1)};
    EXPECT_EQ(other->inbound(slot)[0], byte);
    EXPECT_EQ(other->inbound(slot)[2 * kSlotBytes - 1], byte);
    EXPECT_EQ(one->inbound(slot)[0], byte << 4);
    EXPECT_EQ(one->inbound(slot)[kSlotBytes - 1], byte << 4);
  }
}

TEST_F(DeviceRingsTest, MemoryThatIsNotOfferedOrTooSmallIsNotUsed) {
  SY_ASSERT_OK_AND_ASSIGN(const auto one, DeviceRings::Make(one_.get(), OfferOf().ring_bytes));

  EXPECT_THAT(one->Meet(one_.get(), OfferOf()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  RingOffer nonsense = OfferOf();
  nonsense.device_memory = "no key";
  EXPECT_THAT(one->Meet(one_.get(), nonsense),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  // A peer that says its ring is larger than the memory that it gives.
  SY_ASSERT_OK_AND_ASSIGN(SharedBuffer small, other_->AllocateShared(64));
  RingOffer larger = OfferOf(1024, 4096);
  larger.device_memory = small.key;
  EXPECT_THAT(one->Meet(one_.get(), larger),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_FALSE(one->met());
}

TEST_F(DeviceRingsTest, BothPiecesGoWithTheirOwnersAndMayOutliveTheDevice) {
  auto device = MakeDevice();
  RingOffer offer = OfferOf();
  SY_ASSERT_OK_AND_ASSIGN(auto other, DeviceRings::Make(other_.get(), offer.ring_bytes));
  other->Offer(&offer);
  SY_ASSERT_OK_AND_ASSIGN(auto rings, DeviceRings::Make(device.get(), offer.ring_bytes));
  SY_ASSERT_OK(rings->Meet(device.get(), offer));
  EXPECT_EQ(other_->shared_memory(), 1);

  other.reset();  // the peer ends first
  EXPECT_EQ(other_->shared_memory(), 0);
  std::memset(rings->outbound(0), 1, kSlotBytes);

  device.reset();
  rings.reset();
}

TEST(DeviceBackendTest, ADeviceThatSharesNoMemorySaysSo) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, CpuBackend::Create({.kernel_family = "scalar"}));
  const auto shares_none = FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported);
  EXPECT_THAT(DeviceRings::Make(device.get(), 64).status(), shares_none);
  EXPECT_THAT(device->OpenShared("key", 64).status(), shares_none);
}

}  // namespace
}  // namespace switchyard
