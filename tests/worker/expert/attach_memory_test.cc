// A peer that asks for more memory than there is, over the real transports: an error, not the end
// of the process.
#include "gtest/gtest.h"

#include "tests/testing/memory_limit.h"
#include "tests/testing/transport_pair.h"
#include "tests/worker/expert/engine_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FakeDevice;
using testing::IncarnationOf;
using testing::MakeAttachRequest;
using testing::MakePlan;
using testing::MakeStaged;
using testing::MemoryLimit;
using testing::TransportCase;
using testing::TransportPair;

constexpr std::uint32_t kSlots = 64;
constexpr std::uint32_t kLargest = 64U << 20;

class UcxAttachMemoryTest : public ::testing::TestWithParam<TransportCase> {};

TEST_P(UcxAttachMemoryTest, TheLargestRingsAreRefusedWhereThereIsNoMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer ends a process that has no memory left";
#endif
  TransportPair pair(GetParam());
  FakeDevice device;
  ExpertEngineOptions options;
  options.identity = {.worker_id = "w1", .incarnation = IncarnationOf(1)};
  options.attachment_bytes_max = 1ULL << 50;  // the operator promised too much
  ExpertEngine engine(options, pair.a.get(), *ExpertStreams::Create(&device, {}));
  engine.Activate(MakeStaged(1, MakePlan(1, 2), &device));
  const std::unique_ptr<Link> peer = pair.MakeLink(*pair.b, kSlots, 4096);
  // The first has no memory for metadata, the second none for the own ring.
  for (const auto& [request_bytes, reply_bytes] :
       {std::pair{4096U, kLargest}, std::pair{kLargest, 4096U}}) {
    AttachRequest request = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
    request.transport = GetParam().choice;
    request.cookie = testing::kTestCookie;
    request.request_slot_bytes = request_bytes;
    request.reply_ring = peer->offer();
    request.reply_ring.slot_bytes = reply_bytes;
    request.reply_ring.ring_bytes = std::uint64_t{kSlots} * reply_bytes;
    request.max_tokens = 2 << 20;  // slots of that size are of use to its steps
    request = testing::Signed(std::move(request));
    const std::uint64_t rings = pair.a->stats().ring_bytes;

    const absl::Status refused = [&] {
      const MemoryLimit limit(512U << 20);
      return engine.Attach(request).status();
    }();

    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
    EXPECT_EQ(pair.a->stats().ring_bytes, rings);
    EXPECT_FALSE(engine.has_attachments());
    request.reply_ring = peer->offer();
    request.request_slot_bytes = 4096;
    SY_ASSERT_OK_AND_ASSIGN(const AttachGrant grant, engine.Attach(request));
    engine.Close(grant.request_ring.attachment);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, UcxAttachMemoryTest,
                         ::testing::Values(testing::kLoopbackCase, testing::kUcxTcpCase,
                                           testing::kUcxShmCase),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace switchyard
