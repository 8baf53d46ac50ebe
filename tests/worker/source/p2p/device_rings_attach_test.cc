// Attachments whose rows go from device to device: made and met aside, used for steps on the
// device, and freed whatever becomes of the attachment.
#include <algorithm>
#include <cstring>

#include "gmock/gmock.h"

#include "tests/worker/source/p2p/runner_fixture.h"
#include "worker/device/device_rings.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::LateDevice;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::ScriptedLink;
using testing::TestBatch;

class DeviceRingsAttachTest : public RunnerFixture {
 protected:
  // Of host memory, so that this test can be the worker's device.
  DeviceRingsAttachTest() {
    transport_.makes_memory = true;
    tensors_ = *LateDevice::Create(
        {.host_access = true, .shares = true, .maps_host = true, .source_bytes_min = 0});
    workers_device_ = *LateDevice::Create({.host_access = true, .shares = true});
  }
  void RunAside() {
    ASSERT_TRUE(transport_.RunOneAside());
    Pump();
  }
  // As the worker: with memory of its device, if it has any.
  void Grant(bool with_rings) {
    const auto stream = channel_.Open(plan_.workers[0].endpoint);
    ASSERT_NE(stream, nullptr);
    AttachGrant grant = testing::GrantFor(stream->order, plan_.workers[0].incarnation, 7);
    grant.request_ring.device_memory.clear();
    grant.request_ring.ring_bytes =
        std::uint64_t{grant.request_ring.slots} * grant.request_ring.slot_bytes;
    if (with_rings) {
      SY_ASSERT_OK_AND_ASSIGN(
          rings_, DeviceRings::Make(workers_device_.get(), grant.request_ring.ring_bytes));
      rings_->Offer(&grant.request_ring);
      SY_ASSERT_OK(rings_->Meet(workers_device_.get(), stream->order.reply_ring));
    } else {
      grant.why_no_device = "no such device here";
    }
    stream->sink->OnAttached(grant);
    Pump();
  }
  void OpenWithRings() {
    Start(plan_);
    Pump();
    RunAside();
    Grant(/*with_rings=*/true);
    RunAside();
    ASSERT_TRUE(IsReady());
  }
  bool IsReady() const { return runner_->Status().attachments[0].ready; }
  std::string Path() const { return runner_->Status().attachments[0].request_path; }
  // Answers the oldest frame from where its rows are, with the flags given.
  void Answer(std::uint8_t flags) {
    ScriptedLink* link = LinkOf(plan_, 0);
    ASSERT_FALSE(link->sent.empty());
    ScriptedLink::Sent sent = link->sent.front();
    link->sent.pop_front();
    FrameHeader header;
    ASSERT_EQ(DecodeHeader(sent.frame, &header), FrameDrop::kNone);
    EXPECT_EQ(header.flags, kRowsOnDevice);
    const std::size_t metadata = testing::ReadFrame(sent.frame, plan_, 0).metadata.size();
    const std::size_t rows_at =
        kFrameHeaderBytes + (metadata + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
    std::memcpy(sent.frame.data() + rows_at, rings_->inbound(header.request_slot) + rows_at,
                sent.frame.size() - rows_at);
    std::vector<std::byte> reply = testing::AnswerFrame(sent.frame, plan_, 0, link->offer());
    const std::size_t answer_at = LayoutOfResult(header.rows, plan_.shape.hidden).rows_begin;
    std::memcpy(rings_->outbound(header.reply_slot) + answer_at, reply.data() + answer_at,
                reply.size() - answer_at);
    std::fill(reply.begin() + static_cast<std::ptrdiff_t>(answer_at), reply.end(), std::byte{0xff});
    ASSERT_EQ(DecodeHeader(reply, &header), FrameDrop::kNone);
    header.flags = flags;
    HeaderBytes raw;
    EncodeHeader(header, {}, &raw);
    std::ranges::copy(raw, reply.begin());
    transport_.Deliver(link, std::move(reply));
    Pump();
  }
  StepRequest OnDevice(const TestBatch& batch) const {
    StepRequest request = batch.Request();
    request.on_device = true;
    return request;
  }

  const Plan plan_ = MakeTestPlan(1, {"a"}, DispatchMode::kLowLatency);
  std::unique_ptr<LateDevice> workers_device_;
  std::shared_ptr<DeviceRings> rings_;  // of the worker
};

TEST_F(DeviceRingsAttachTest, RowsAndAnswersOfStepsOnTheDeviceLieInMemoryOfDevices) {
  OpenWithRings();
  EXPECT_EQ(Path(), "device");
  EXPECT_EQ(tensors_->mapped_memory(), 0) << "nobody needs the rings mapped";
  const TestBatch batch(1, 3);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(OnDevice(batch)));
  Pump();
  while (!IsDone(ticket)) Answer(kRowsOnDevice);

  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
}

TEST_F(DeviceRingsAttachTest, StepsFromMemoryOfTheHostKeepTheRings) {
  OpenWithRings();
  const TestBatch batch(1, 4);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  while (!IsDone(ticket)) {
    ASSERT_TRUE(AnswerOne(plan_, 0));
    Pump();
  }

  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
}

// Rows that are elsewhere must not be summed.
TEST_F(DeviceRingsAttachTest, AnAnswerThatSaysItIsInTheRingFailsTheStep) {
  OpenWithRings();
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(OnDevice(batch)));
  Pump();

  Answer(/*flags=*/0);

  ASSERT_TRUE(IsDone(ticket));
  EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kInternal, Reason::kFrame));
}

TEST_F(DeviceRingsAttachTest, AWorkerWithoutSuchMemoryGetsRowsThroughMappedRings) {
  Start(plan_);
  Pump();
  RunAside();
  Grant(/*with_rings=*/false);
  RunAside();

  EXPECT_EQ(Path(), "inproc");
  EXPECT_EQ(runner_->Status().attachments[0].why_no_device, "no such device here");
  EXPECT_EQ(tensors_->mapped_memory(), 2);
  while (transport_.RunOneAside()) {
  }
  EXPECT_EQ(tensors_->shared_memory(), 0) << "what was offered is freed";
}

// Goal: no piece of memory outlives its attachment. Method: the session closes after each stage.
TEST_F(DeviceRingsAttachTest, ASessionThatClosesFreesAllAtAnyStage) {
  for (int stages = 0; stages <= 3; ++stages) {
    Start(plan_);
    Pump();
    if (stages > 0) RunAside();
    if (stages > 1) Grant(/*with_rings=*/true);
    if (stages > 2) RunAside();
    EXPECT_EQ(tensors_->shared_memory() > 0, stages > 0) << stages;

    runner_->Close(clock_.Now());
    runner_.reset();
    while (transport_.RunOneAside()) {
    }

    EXPECT_EQ(tensors_->shared_memory(), 0) << stages;
    rings_.reset();
    EXPECT_EQ(workers_device_->shared_memory(), 0) << stages;
  }
}

}  // namespace
}  // namespace switchyard
