// Links whose memory was made on another thread, as workers and sources make them.
#include "worker/transport/ucx/link_memory.h"

#include <future>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::TransportCase;

constexpr auto kSoon = std::chrono::seconds(10);
constexpr std::uint32_t kSlots = 4;
constexpr std::uint32_t kSlotBytes = 8U << 20;  // so that a ring has 8192 pages
constexpr std::int64_t kFewFaults = 1024;

// Page faults of the calling thread so far.
std::int64_t Faults() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

LinkOptions OptionsOf(const TransportCase& c, bool connects_at_once) {
  return {.cookie = testing::kTestCookie,
          .slots = kSlots,
          .slot_bytes = kSlotBytes,
          .choice = c.choice,
          .connects_at_once = connects_at_once};
}

template <typename Work>
void OnAnotherThread(Work work) {
  std::jthread(std::move(work)).join();
}

class UcxLinkMemoryTest : public ::testing::TestWithParam<TransportCase> {};

// The source offers, the worker comes and connects, the source connects: as in an Attach.
TEST_P(UcxLinkMemoryTest, NoPageIsMadeMappedOrFreedOnTheOwnersThread) {
  testing::TransportPair pair(GetParam());
  LinkOptions source_options = OptionsOf(GetParam(), false);
  LinkOptions worker_options = OptionsOf(GetParam(), true);
  std::promise<std::thread::id> source_freed;
  std::promise<std::thread::id> worker_freed;
  source_options.until_freed = {nullptr,
                                [&](void*) { source_freed.set_value(std::this_thread::get_id()); }};
  worker_options.until_freed = {nullptr,
                                [&](void*) { worker_freed.set_value(std::this_thread::get_id()); }};
  OnAnotherThread([&] { source_options.memory = pair.b->MakeMemory(source_options); });
  ASSERT_NE(source_options.memory, nullptr);
  const std::int64_t before = Faults();
  std::unique_ptr<Link> source = *pair.b->CreateLink(source_options);
  std::int64_t faults = Faults() - before;
  OnAnotherThread([&] {
    worker_options.memory = pair.a->MakeMemory(worker_options);
    worker_options.memory->Meet(source->offer());
  });
  const std::int64_t connecting = Faults();
  std::unique_ptr<Link> worker = *pair.a->CreateLink(worker_options);
  SY_ASSERT_OK(worker->Connect(source->offer()));
  faults += Faults() - connecting;
  OnAnotherThread([&] { source_options.memory->Meet(worker->offer()); });
  const std::int64_t last = Faults();
  SY_ASSERT_OK(source->Connect(worker->offer()));
  faults += Faults() - last;
  EXPECT_LT(faults, kFewFaults);
  EXPECT_EQ(source->path(), GetParam().path);
  EXPECT_EQ(worker->path(), GetParam().path);

  SystemRng rng;
  const auto payload = testing::RandomPayload(rng, 1U << 20);
  for (auto& [from, to] : {std::pair{source.get(), worker.get()}, {worker.get(), source.get()}}) {
    SY_ASSERT_OK(testing::SendFrame(
        *from, testing::HeaderFor(to->offer(), FrameKind::kRequest, 1, payload.size()), payload));
  }
  ASSERT_TRUE(pair.PumpUntil(
      [&] { return pair.sink_a.frames.size() == 1 && pair.sink_b.frames.size() == 1; }));
  EXPECT_EQ(pair.sink_a.frames[0].payload, payload);
  EXPECT_EQ(pair.sink_b.frames[0].payload, payload);

  for (LinkOptions* options : {&source_options, &worker_options}) {
    options->memory = nullptr;
    options->until_freed = nullptr;
  }
  source->Close();
  worker->Close();
  for (std::promise<std::thread::id>* freed : {&source_freed, &worker_freed}) {
    auto on = freed->get_future();
    ASSERT_EQ(on.wait_for(kSoon), std::future_status::ready);
    EXPECT_NE(on.get(), std::this_thread::get_id());
  }
}

TEST_P(UcxLinkMemoryTest, ALinkMayCloseWhileItsMemoryMeetsThePeer) {
  testing::TransportPair pair(GetParam());
  for (int round = 0; round < 20; ++round) {
    LinkOptions each = OptionsOf(GetParam(), false);
    each.slot_bytes = 4096;
    each.memory = pair.b->MakeMemory(each);
    const std::unique_ptr<Link> source = *pair.b->CreateLink(each);
    const std::unique_ptr<Link> worker = pair.MakeLink(*pair.a, kSlots, 4096);
    std::promise<void> met;
    ASSERT_TRUE(pair.b->RunAside([&met, memory = std::move(each.memory), peer = worker->offer()] {
      memory->Meet(peer);
      met.set_value();
    }));
    source->Close();
    ASSERT_EQ(met.get_future().wait_for(kSoon), std::future_status::ready);
  }
}

TEST_P(UcxLinkMemoryTest, WhatFailsAheadIsToldByTheLink) {
  testing::TransportPair pair(GetParam());
  LinkOptions options = OptionsOf(GetParam(), true);
  options.slot_bytes = 4096;
  options.memory = pair.a->MakeMemory(options);
  const std::unique_ptr<Link> peer = pair.MakeLink(*pair.b, kSlots - 1, 4096);
  options.memory->Meet(peer->offer());
  const std::unique_ptr<Link> link = *pair.a->CreateLink(options);
  EXPECT_THAT(link->Connect(peer->offer()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));

  options.slots = 0;
  EXPECT_EQ(pair.a->MakeMemory(options), nullptr);
  options.memory = nullptr;
  EXPECT_THAT(pair.a->CreateLink(options),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

INSTANTIATE_TEST_SUITE_P(Transports, UcxLinkMemoryTest,
                         ::testing::Values(testing::kUcxTcpCase, testing::kUcxShmCase),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace switchyard
