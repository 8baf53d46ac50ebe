// The engine's tests (expert_engine_test, epoch_change_test) hold the attachment as a whole; here
// is what it does without an engine.
#include "worker/expert/expert_attachment.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"

namespace switchyard {
namespace {

using testing::FakeDevice;
using testing::FakeTransport;
using testing::MakeAttachRequest;
using testing::MakePlan;
using testing::MakeStaged;

TEST(ExpertAttachmentTest, ReplyRowsAreThoseOfThePeersSlot) {
  FakeDevice device;
  FakeTransport transport;
  StagedEpoch staged = MakeStaged(0, MakePlan(1, 2), &device);
  CommittedEpoch epoch{std::move(staged.runtime), std::move(staged.memory)};
  ExpertAttachment attachment(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal), &epoch,
                              {.worker_id = "w0", .incarnation = testing::IncarnationOf(0)});

  SY_ASSERT_OK_AND_ASSIGN(const AttachGrant grant, attachment.Open(&transport, &device));

  ExpertAttachment::Credit& credit = attachment.credit(2);
  credit.header.rows = 3;
  credit.header.reply_slot = 2;
  credit.intake.layer = &epoch.runtime->layers[0];
  const std::span<std::byte> slot = transport.Find(grant.request_ring.attachment)->OutboundSlot(2);
  EXPECT_EQ(static_cast<void*>(attachment.InputOf(credit).out),
            static_cast<void*>(slot.data() + LayoutOfResult(3, 24).rows_begin));
  EXPECT_EQ(attachment.number(), grant.request_ring.attachment);
  EXPECT_EQ(attachment.FindBound(Epoch{1}), &epoch);
  EXPECT_EQ(attachment.FindBound(Epoch{2}), nullptr);
}

// Rows on a device are none of an attachment that has no memory there: its device would read what
// stands behind a null pointer.
TEST(ExpertAttachmentTest, AFrameWithRowsOnADeviceNeedsMemoryThere) {
  FakeDevice device;
  FakeTransport transport;
  StagedEpoch staged = MakeStaged(0, MakePlan(1, 2), &device);
  CommittedEpoch epoch{std::move(staged.runtime), std::move(staged.memory)};
  const AttachRequest request = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  ExpertAttachment attachment(request, &epoch,
                              {.worker_id = "w0", .incarnation = testing::IncarnationOf(0)});
  SY_ASSERT_OK(attachment.Open(&transport, &device).status());
  FrameHeader header;
  header.source_incarnation = static_cast<std::uint32_t>(request.reply_ring.incarnation.low);
  header.flags = kRowsOnDevice;
  HeaderBytes raw{};
  FrameDrop drop = FrameDrop::kNone;

  EXPECT_EQ(attachment.OnFrame(raw, header, {}, &drop), ExpertAttachment::Arrival::kDropped);

  EXPECT_EQ(drop, FrameDrop::kField);
}

}  // namespace
}  // namespace switchyard
