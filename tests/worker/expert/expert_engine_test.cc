#include "worker/expert/expert_engine.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "tests/testing/allocation_counter.h"
#include "tests/worker/expert/engine_fixture.h"

namespace switchyard {
namespace {

using namespace std::chrono_literals;
using testing::AllocationsOfThisThread;
using testing::EngineFixture;
using testing::FailsWith;
using testing::kBothModes;
using testing::MakeAttachRequest;
using testing::MakePlan;
using testing::ReadReply;
using testing::TestRequest;

class ExpertEngineTest : public EngineFixture {
 protected:
  std::uint64_t BytesOf(const AttachRequest& order) {
    return ExpertAttachment::BytesOf(order, *MakeStaged(1, MakePlan(1, 2), &device_).runtime);
  }
};

TEST_F(ExpertEngineTest, AttachOffersARingAndConnectsToTheSources) {
  const Source source = Attach(DispatchMode::kNormal);

  ASSERT_NE(source.link, nullptr);
  EXPECT_EQ(source.grant.request_ring.slots, 4U);
  EXPECT_EQ(source.grant.request_ring.slot_bytes, 8192U);
  EXPECT_EQ(source.grant.path, "inproc");
  EXPECT_EQ(source.link->options.cookie, source.order.cookie);
  EXPECT_EQ(source.link->OutboundSlot(3).size(), 8192U);
}

// R34: requests may be half as large as their answers.
TEST_F(ExpertEngineTest, AttachOffersRequestSlotsOfTheirOwnSize) {
  AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  order.request_slot_bytes = 4096;

  SY_ASSERT_OK_AND_ASSIGN(const AttachGrant grant, engine_->Attach(order));

  EXPECT_EQ(grant.request_ring.slot_bytes, 4096U);
  EXPECT_EQ(transport_.Find(grant.request_ring.attachment)->OutboundSlot(0).size(), 8192U);
  EXPECT_EQ(transport_.stats().ring_bytes, 4U * 4096U) << "the worker's memory is the requests'";
}

TEST_F(ExpertEngineTest, AttachRefusesRequestSlotsOutsideItsLimits) {
  for (const std::uint32_t bytes : {256U, (64U << 20) + 1}) {
    AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
    order.request_slot_bytes = bytes;

    const absl::Status refused = engine_->Attach(order).status();

    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge));
    EXPECT_THAT(std::string(refused.message()),
                ::testing::HasSubstr(absl::StrCat("request ring: slots have ", bytes, " bytes")));
  }
}

// R122 (attach): only an epoch that is committed here under this hash.
TEST_F(ExpertEngineTest, AttachRefusesWhatIsNotCommittedHere) {
  const AttachRequest good = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  AttachRequest hash = good;
  hash.hash.bytes[0] ^= 1;
  AttachRequest epoch = good;
  epoch.epoch = Epoch{2};
  AttachRequest deployment = good;
  deployment.deployment = "other";

  for (const AttachRequest& order : {hash, epoch, deployment}) {
    const absl::Status status = engine_->Attach(order).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
    EXPECT_EQ(MetadataOf(status).at("worker"), "w1");
  }
  EXPECT_EQ(transport_.open_links(), 0U);
}

// A session that the coordinator did not grant, or granted otherwise, costs nothing and gets
// nothing.
TEST_F(ExpertEngineTest, AttachRefusesWhatWasNotGranted) {
  const AttachRequest good = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  AttachRequest unsigned_one = good;
  unsigned_one.signature = {};
  AttachRequest session = good;
  session.session.low ^= 1;
  AttachRequest cookie = good;
  cookie.cookie.value ^= 1;
  AttachRequest phase = good;
  phase.phase = Phase::kDecode;
  AttachRequest mode = good;
  mode.mode = DispatchMode::kLowLatency;
  AttachRequest larger = good;
  ++larger.max_tokens;
  AttachRequest amax = good;
  amax.record_amax = true;

  for (const AttachRequest& order : {unsigned_one, session, cookie, phase, mode, larger, amax}) {
    const absl::Status status = engine_->Attach(order).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
    EXPECT_EQ(MetadataOf(status).at("worker"), "w1");
    EXPECT_EQ(MetadataOf(status).at("session"), ToHex(order.session));
    EXPECT_EQ(MetadataOf(status).at("deployment"), "demo");
  }
  EXPECT_EQ(transport_.open_links(), 0U);
  EXPECT_EQ(transport_.stats().ring_bytes, 0U);
  SY_EXPECT_OK(engine_->Attach(good));
}

// The keys are those of the epoch that it names: a coordinator whose store was lost signs with
// another one, and the workers of its first epoch take both.
TEST_F(ExpertEngineTest, AttachTakesTheKeysOfTheEpoch) {
  SeededRng rng(99);
  const GrantKey other = GrantKey::Random(&rng);
  Prepare prepare = testing::MakePrepare(MakePlan(2, 2));
  prepare.grant_keys = {other, testing::TestGrantKey()};
  auto staged = EpochStager(testing::StagerOf(1, &device_))
                    .Stage({.prepare = &prepare, .resident = {}, .stop = {}, .on_progress = {}});
  SY_ASSERT_OK(staged);
  engine_->Activate(*std::move(staged));
  AttachRequest older = MakeAttachRequest(MakePlan(2, 2), DispatchMode::kNormal, 1);
  AttachRequest newer = MakeAttachRequest(MakePlan(2, 2), DispatchMode::kNormal, 2);
  newer.signature = SignGrant(other, ClaimsOf(newer));
  AttachRequest early = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, 2);
  early.signature = newer.signature;

  SY_EXPECT_OK(engine_->Attach(older));
  SY_EXPECT_OK(engine_->Attach(newer));
  EXPECT_THAT(engine_->Attach(early),
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
}

// A session that is attached goes on through a change of keys: its stream is the proof.
TEST_F(ExpertEngineTest, BindNeedsNoSignatureOfTheNextKey) {
  const Source source = Attach(DispatchMode::kNormal);
  SeededRng rng(99);
  Prepare prepare = testing::MakePrepare(MakePlan(2, 2));
  prepare.grant_keys = {GrantKey::Random(&rng)};
  auto staged = EpochStager(testing::StagerOf(1, &device_))
                    .Stage({.prepare = &prepare, .resident = {}, .stop = {}, .on_progress = {}});
  SY_ASSERT_OK(staged);
  engine_->Activate(*std::move(staged));

  SY_EXPECT_OK(engine_->Bind(source.grant.request_ring.attachment,
                             {.epoch = Epoch{2}, .hash = HashOf(MakePlan(2, 2))}));
}

// The limit that the coordinator granted, and not the one that the source would like. The smallest
// slots, which hold an error, have room for a row or two more than one token has.
TEST_F(ExpertEngineTest, RefusesChunksOfMoreRowsThanTheGrantAllows) {
  for (const DispatchMode mode : kBothModes) {
    AttachRequest order = MakeAttachRequest(MakePlan(1, 2), mode, mode == DispatchMode::kNormal);
    order.max_tokens = 1;
    order.reply_ring.slot_bytes =
        static_cast<std::uint32_t>(LayoutOfError(kErrorTextMax).frame_bytes);
    order = testing::Signed(std::move(order));
    Source source{.order = order, .grant = {}, .link = nullptr};
    SY_ASSERT_OK_AND_ASSIGN(source.grant, engine_->Attach(order));
    source.link = transport_.Find(source.grant.request_ring.attachment);

    ExpectServed(source, Request(source, 1, 0, 0, 1));
    TestRequest larger;
    for (std::uint64_t seed = 1; larger.header.rows != 4 && seed < 100; ++seed) {
      larger = Request(source, seed, 0, 0, mode == DispatchMode::kNormal ? 4 : 2);
    }
    ASSERT_EQ(larger.header.rows, 4U);
    ASSERT_LE(Encode(larger).size(), order.reply_ring.slot_bytes);
    ExpectRefused(source, larger, absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens);
  }
}

TEST_F(ExpertEngineTest, AttachRefusesRingsThatItCannotServe) {
  const AttachRequest good = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  struct Case {
    std::uint32_t slots;
    std::uint32_t slot_bytes;
    Reason reason;
  };
  for (const Case& bad : {Case{0, 8192, Reason::kBadRequest}, Case{65, 8192, Reason::kBadRequest},
                          Case{4, 256, Reason::kMessageTooLarge},
                          Case{4, (64U << 20) + 1, Reason::kMessageTooLarge}}) {
    AttachRequest order = good;
    order.reply_ring.slots = bad.slots;
    order.reply_ring.slot_bytes = bad.slot_bytes;
    EXPECT_THAT(engine_->Attach(order), FailsWith(absl::StatusCode::kInvalidArgument, bad.reason));
  }
  AttachRequest nobody = good;
  nobody.reply_ring.incarnation = {};
  EXPECT_THAT(engine_->Attach(nobody),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST_F(ExpertEngineTest, AttachRefusesMoreThanItsLimits) {
  const auto order_of = [](std::uint64_t session) {
    return MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, session);
  };
  options_.attachments_max = 2;
  options_.attachment_bytes_max = BytesOf(order_of(1)) * 3 / 2;
  Restart();
  SY_ASSERT_OK(engine_->Attach(order_of(1)));

  EXPECT_THAT(engine_->Attach(order_of(2)),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  AttachRequest small = order_of(2);
  small.reply_ring.slot_bytes = 512;
  SY_ASSERT_OK(engine_->Attach(small));
  AttachRequest third = order_of(3);
  third.reply_ring.slot_bytes = 512;
  EXPECT_THAT(engine_->Attach(third),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
}

// The peer's ring counts as much as the own one, and so does what is kept beside them.
TEST_F(ExpertEngineTest, AttachCountsAllMemoryThatAPeerCanSize) {
  AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  order.max_tokens = 2 << 20;  // slots of that size are of use to its steps
  order = testing::Signed(std::move(order));
  order.reply_ring.slots = 64;
  order.reply_ring.slot_bytes = 64U << 20;
  order.reply_ring.ring_bytes = 64ULL << 26;
  const std::uint64_t rings = 2 * order.reply_ring.ring_bytes;
  // For a row of 48 bytes a token and three pairs of slot and weight, and the pairs once more.
  EXPECT_GT(BytesOf(order), rings + rings / 2);
  const std::uint64_t before = transport_.stats().ring_bytes;

  const absl::Status refused = engine_->Attach(order).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_NE(refused.message().find(absl::StrCat(BytesOf(order))), std::string::npos) << refused;
  EXPECT_EQ(transport_.stats().ring_bytes, before) << "nothing was allocated for it";
  order.request_slot_bytes = 4096;
  order.reply_ring.slot_bytes = 4096;
  const std::uint64_t small = BytesOf(order);
  order.reply_ring.slot_bytes = 8192;
  EXPECT_GT(BytesOf(order), small + 64 * 4096);
  order.record_amax = true;
  EXPECT_GT(BytesOf(order), small + 64 * 4096);
}

// R35: a full worker still lets a session change to larger slots, once at a time and within memory.
TEST_F(ExpertEngineTest, ASessionThatAttachesAgainForLargerSlotsCountsOnce) {
  AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  options_.attachments_max = 1;
  options_.attachment_bytes_max = BytesOf(order);
  Restart();
  order.request_slot_bytes = 4096;
  SY_ASSERT_OK_AND_ASSIGN(const AttachGrant first, engine_->Attach(order));
  AttachRequest larger = order;
  larger.request_slot_bytes = 16384;
  EXPECT_THAT(engine_->Attach(larger),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  larger.request_slot_bytes = 8192;

  SY_ASSERT_OK_AND_ASSIGN(const AttachGrant second, engine_->Attach(larger));

  EXPECT_FALSE(engine_->Attach(larger).ok()) << "a third is not exempt";
  engine_->Close(first.request_ring.attachment);
  EXPECT_EQ(transport_.open_links(), 1U);
  EXPECT_EQ(engine_->CountersOf(order.session).size(), 1U);
}

// What a session was answered is not forgotten with the smaller of its rings.
TEST_F(ExpertEngineTest, CountsGoOnWithTheAttachmentThatStays) {
  const Source first = Attach(DispatchMode::kNormal);
  ExpectServed(first, Request(first, 91));
  const AttachmentCounters before = engine_->CountersOf(first.order.session).at(0);
  ASSERT_GT(before.rows, 0U);
  SY_ASSERT_OK(engine_->Attach(first.order));

  engine_->Close(first.grant.request_ring.attachment);

  const std::vector<AttachmentCounters> after = engine_->CountersOf(first.order.session);
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(after[0].rows, before.rows);
  EXPECT_EQ(after[0].request_payload_bytes, before.request_payload_bytes);
  EXPECT_EQ(after[0].hits, before.hits);
}

TEST_F(ExpertEngineTest, AttachTakesSlotsThatJustHoldTheLongestError) {
  AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  order.reply_ring.slot_bytes =
      static_cast<std::uint32_t>(LayoutOfError(kErrorTextMax).frame_bytes);
  SY_EXPECT_OK(engine_->Attach(order));

  order.reply_ring.slot_bytes -= static_cast<std::uint32_t>(kFrameAlign);

  EXPECT_THAT(engine_->Attach(order),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge));
}

TEST_F(ExpertEngineTest, AttachThatCannotConnectLeavesNothing) {
  transport_.connect_result =
      MakeError(absl::StatusCode::kUnavailable, Reason::kTransport, "unreachable");

  EXPECT_THAT(engine_->Attach(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kTransport));

  EXPECT_EQ(transport_.open_links(), 0U);
  EXPECT_FALSE(engine_->has_attachments());
}

// R48, R57
TEST_F(ExpertEngineTest, AnswersARequestInItsPairWithTheHeaderSentBack) {
  for (const DispatchMode mode : kBothModes) {
    const Source source = Attach(mode);
    const TestRequest request = Request(source, 3, 2, 1);
    Deliver(source, request);

    EXPECT_TRUE(engine_->Poll(now_));

    const ReadReply reply = Next();
    EXPECT_EQ(last_sender_, source.grant.request_ring.attachment);
    EXPECT_EQ(last_slot_, 2U);
    EXPECT_EQ(reply.damage, FrameDrop::kNone);
    FrameHeader expected = request.header;
    expected.kind = FrameKind::kResult;
    expected.attachment = source.order.reply_ring.attachment;
    expected.source_incarnation = static_cast<std::uint32_t>(testing::IncarnationOf(1).low);
    expected.payload_bytes = LayoutOfResult(request.header.rows, 24).payload_bytes();
    EXPECT_EQ(reply.header, expected);
    EXPECT_EQ(reply.rows, request.expected);
    EXPECT_FALSE(engine_->Poll(now_));
  }
}

TEST_F(ExpertEngineTest, RunsRequestsOfOneLayerAndModeOfAllSourcesTogether) {
  const Source a = Attach(DispatchMode::kNormal, 1);
  const Source b = Attach(DispatchMode::kNormal, 2);
  const Source c = Attach(DispatchMode::kLowLatency, 3);
  const TestRequest a0 = Request(a, 11, 0);
  const TestRequest a1 = Request(a, 12, 1);
  const TestRequest b0 = Request(b, 13, 0);
  const TestRequest b_other_layer = Request(b, 14, 1, 1);
  const TestRequest c0 = Request(c, 15, 0);
  Deliver(a, a0);
  Deliver(b, b_other_layer);
  Deliver(c, c0);
  Deliver(a, a1);
  Deliver(b, b0);

  engine_->Poll(now_);

  EXPECT_EQ(engine_->stats().batches, 3U);
  // low_latency is decode work and goes first; otherwise batches run in the order of arrival.
  for (const TestRequest* expected : {&c0, &a0, &a1, &b0, &b_other_layer}) {
    const ReadReply reply = Next();
    EXPECT_EQ(reply.header.kind, FrameKind::kResult);
    EXPECT_EQ(reply.rows, expected->expected);
  }
  EXPECT_EQ(engine_->stats().requests, 5U);
}

// A decode step must not wait for the kernels of a large batch.
TEST_F(ExpertEngineTest, PrefillBatchesAreLargeOnlyWhileNothingDecodes) {
  device_.prefill_batch = BatchSize{.rows = 1000, .pairs = 4000};
  options_.batch.rows_max = 1;
  Restart();
  const Source prefill = Attach(DispatchMode::kNormal, 1);
  const Source decode = Attach(DispatchMode::kLowLatency, 2);
  // Three requests that wait together; the number of batches that they make.
  const auto run = [&] {
    const std::uint64_t before = engine_->stats().batches;
    std::vector<TestRequest> requests;
    for (std::uint16_t slot = 0; slot < 3; ++slot) {
      requests.push_back(Request(prefill, 40U + slot, slot));
      Deliver(prefill, requests.back());
    }
    engine_->Poll(now_);
    for (const TestRequest& request : requests) EXPECT_EQ(Next().rows, request.expected);
    return engine_->stats().batches - before;
  };

  EXPECT_EQ(run(), 1U);
  ExpectServed(decode, Request(decode, 43));
  EXPECT_EQ(run(), 3U);
  now_ += std::chrono::seconds(1);
  EXPECT_EQ(run(), 1U);
}

// R43, R68
TEST_F(ExpertEngineTest, AlternatingModesAndRepeatsChangeNoBit) {
  const Source normal = Attach(DispatchMode::kNormal, 1);
  const Source low_latency = Attach(DispatchMode::kLowLatency, 2);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    ExpectServed(normal, Request(normal, 17, 0, 0, 20));
    ExpectServed(low_latency, Request(low_latency, 18, 0, 0, 20));
  }
}

// R122: a frame of an epoch that is not bound is refused, in both modes.
TEST_F(ExpertEngineTest, RefusesFramesOfAStaleEpochAndGoesOn) {
  for (const DispatchMode mode : kBothModes) {
    const Source source = Attach(mode);
    TestRequest stale = Request(source, 21, 1);
    stale.header.epoch = Epoch{2};

    const ReadReply reply =
        ExpectRefused(source, stale, absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch);

    EXPECT_EQ(reply.header.step, stale.header.step);
    EXPECT_EQ(reply.header.chunk, stale.header.chunk);
    EXPECT_EQ(reply.error.row, kNoRow);
    ExpectServed(source, Request(source, 22, 1));
  }
}

TEST_F(ExpertEngineTest, RefusesAnUnknownLayerInBothModes) {
  for (const DispatchMode mode : kBothModes) {
    const Source source = Attach(mode);
    TestRequest request = Request(source, 31);
    request.header.layer = LayerId{9};

    ExpectRefused(source, request, absl::StatusCode::kNotFound, Reason::kUnknownLayer);
  }
}

// R40: every frame carries its mode; who disagrees is answered at once, and nobody waits for it.
TEST_F(ExpertEngineTest, RefusesAFrameOfAnotherModeAndServesBothSessionsOn) {
  const Source normal = Attach(DispatchMode::kNormal, 1);
  const Source low_latency = Attach(DispatchMode::kLowLatency, 2);
  const auto expect_refused = [&](const Source& at, const Source& other, const char* text) {
    TestRequest request = Request(other, 46);
    request.header.attachment = at.grant.request_ring.attachment;
    const ReadReply reply =
        ExpectRefused(at, request, absl::StatusCode::kInvalidArgument, Reason::kBadRequest);
    EXPECT_EQ(reply.error.text, text);
  };

  expect_refused(normal, low_latency, "a low_latency frame in a normal session");
  expect_refused(low_latency, normal, "a normal frame in a low_latency session");

  ExpectServed(normal, Request(normal, 47));
  ExpectServed(low_latency, Request(low_latency, 48));
}

TEST_F(ExpertEngineTest, RefusesWhatASourceMayNotAsk) {
  const Source normal = Attach(DispatchMode::kNormal, 1);
  const Source low_latency = Attach(DispatchMode::kLowLatency, 2);

  TestRequest mode = Request(low_latency, 41);
  mode.header.attachment = normal.grant.request_ring.attachment;
  ExpectRefused(normal, mode, absl::StatusCode::kInvalidArgument, Reason::kBadRequest);

  TestRequest pair = Request(normal, 42, 1);
  pair.header.reply_slot = 3;
  ExpectRefused(normal, pair, absl::StatusCode::kInvalidArgument, Reason::kFrame);
  EXPECT_EQ(last_slot_, 3U);

  TestRequest empty = Request(normal, 43);
  empty.header.rows = 0;
  empty.header.payload_bytes = 0;
  empty.metadata.clear();
  empty.rows.clear();
  ExpectRefused(normal, empty, absl::StatusCode::kInvalidArgument, Reason::kFrame);

  TestRequest slot = Request(normal, 44);
  slot.metadata[7 * 4 * 2 + 4] = std::byte{3};  // row 2, k 0: the worker has slots 0 to 2
  const ReadReply reply =
      ExpectRefused(normal, slot, absl::StatusCode::kInvalidArgument, Reason::kFrame);
  EXPECT_EQ(reply.error.row, 2U);

  ExpectServed(normal, Request(normal, 45));
  EXPECT_EQ(engine_->stats().refused, 4U);
}

TEST_F(ExpertEngineTest, RefusesAnAnswerThatDoesNotFitTheReplySlot) {
  AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  order.reply_ring.slot_bytes = 8192;
  SY_ASSERT_OK_AND_ASSIGN(const AttachGrant grant, engine_->Attach(order));
  const Source source{order, grant, transport_.Find(grant.request_ring.attachment)};
  RingOffer smaller = order.reply_ring;
  smaller.slot_bytes = 512;
  SY_ASSERT_OK(source.link->Connect(smaller));  // As if the peer's ring were smaller than agreed.

  ExpectRefused(source, Request(source, 51, 0, 0, 20), absl::StatusCode::kInvalidArgument,
                Reason::kMessageTooLarge);
}

TEST_F(ExpertEngineTest, DropsAndCountsFramesThatCannotBeBelieved) {
  const Source source = Attach(DispatchMode::kLowLatency);
  const auto deliver_damaged = [&](FrameDrop expected, auto damage) {
    TestRequest request = Request(source, 61);
    std::vector<std::byte> frame = Encode(request);
    damage(request, frame);
    const std::uint64_t before = Drops(expected);
    transport_.Deliver(source.link, 0, frame);
    engine_->Poll(now_);
    EXPECT_EQ(Drops(expected), before + 1) << FrameDropName(expected);
    EXPECT_EQ(transport_.TakeReply(), std::nullopt);
  };

  deliver_damaged(FrameDrop::kField, [](TestRequest& request, auto& frame) {
    request.header.kind = FrameKind::kResult;
    frame = Encode(request);
  });
  deliver_damaged(FrameDrop::kAttachment, [](TestRequest& request, auto& frame) {
    request.header.source_incarnation ^= 1;
    frame = Encode(request);
  });
  deliver_damaged(FrameDrop::kSlot, [](TestRequest& request, auto& frame) {
    request.header.reply_slot = 4;
    frame = Encode(request);
  });
  deliver_damaged(FrameDrop::kLength, [](TestRequest& request, auto& frame) {
    request.header.rows += 1;
    frame = Encode(request);
  });
  deliver_damaged(FrameDrop::kLength, [](TestRequest& request, auto& frame) {
    request.header.rows = 0xffffffffU;
    frame = Encode(request);
  });
  deliver_damaged(FrameDrop::kLength, [](TestRequest&, auto& frame) { frame.resize(200); });
  deliver_damaged(FrameDrop::kCrc,
                  [](TestRequest&, auto& frame) { frame[64 + 5] ^= std::byte{4}; });
  deliver_damaged(FrameDrop::kCrc, [](TestRequest& request, auto& frame) {
    request.header.layer = LayerId{1};  // Without a new CRC.
    HeaderBytes raw;
    EncodeHeader(request.header, {}, &raw);
    std::memcpy(frame.data(), raw.data(), raw.size());
  });
  deliver_damaged(FrameDrop::kCrc, [](TestRequest& request, auto& frame) {
    request.header.epoch = Epoch{9};
    frame = Encode(request);
    frame[64 + 5] ^= std::byte{4};
  });

  ExpectServed(source, Request(source, 62));
}

TEST_F(ExpertEngineTest, SurvivesRandomDamageAndServesTheOthersBitEqual) {
  for (const DispatchMode mode : kBothModes) {
    const Source hostile = Attach(mode, 1);
    const Source honest = Attach(mode, 2);
    SeededRng rng(71);
    const TestRequest request = Request(hostile, 72);
    const std::vector<std::byte> intact = Encode(request);
    for (int round = 0; round < 3000; ++round) {
      SCOPED_TRACE(::testing::Message() << "seed 71 round " << round);
      std::vector<std::byte> frame = intact;
      const std::size_t header_and_metadata = 64 + request.metadata.size();
      for (std::uint64_t flips = 1 + rng.Below(3); flips > 0; --flips) {
        frame[rng.Below(header_and_metadata)] ^= static_cast<std::byte>(1 + rng.Below(255));
      }
      if (rng.Below(8) == 0) frame.resize(64 + rng.Below(frame.size() - 64));
      transport_.Deliver(hostile.link, 0, frame);
      engine_->Poll(now_);
      EXPECT_EQ(transport_.TakeReply(), std::nullopt);
    }
    ExpectServed(honest, Request(honest, 73));
    engine_->Close(hostile.grant.request_ring.attachment);
    engine_->Close(honest.grant.request_ring.attachment);
  }
}

TEST_F(ExpertEngineTest, DropsASecondRequestForABusyCredit) {
  const Source source = Attach(DispatchMode::kNormal);
  const TestRequest request = Request(source, 81, 1);
  Deliver(source, request);
  Deliver(source, request);

  engine_->Poll(now_);

  EXPECT_EQ(Next().rows, request.expected);
  EXPECT_EQ(transport_.TakeReply(), std::nullopt);
  EXPECT_EQ(engine_->stats().duplicates, 1U);
  ExpectServed(source, Request(source, 82, 1));
}

// R127 (BF16), and the hits that verify compares with routing and placement.
TEST_F(ExpertEngineTest, CountsRowsBytesAndHitsOfEachAttachment) {
  for (const DispatchMode mode : kBothModes) {
    const Source source = Attach(mode, 5);
    const Source other = Attach(mode, 6);
    std::uint64_t rows = 0;
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> hits;
    for (std::uint64_t seed = 91; seed < 97; ++seed) {
      const auto layer = static_cast<std::int32_t>(seed % 2);
      const TestRequest request = Request(source, seed, 0, layer);
      rows += request.header.rows;
      for (std::size_t pair = 0; pair < step_.routing.ids.size(); ++pair) {
        if (step_.plan.worker_of_pair[pair] == 1) ++hits[{layer, step_.routing.ids[pair]}];
      }
      ExpectServed(source, request);
    }
    ExpectServed(other, Request(other, 98));

    const auto counters = engine_->CountersOf(source.order.session);

    ASSERT_EQ(counters.size(), 1U);
    EXPECT_EQ(counters[0].session, source.order.session);
    EXPECT_EQ(counters[0].worker_id, "w1");
    EXPECT_EQ(counters[0].path, "inproc");
    EXPECT_EQ(counters[0].frames, 6U);
    EXPECT_EQ(counters[0].rows, rows);
    EXPECT_EQ(counters[0].request_payload_bytes, rows * 24 * 2);
    EXPECT_EQ(counters[0].reply_payload_bytes, rows * 24 * 2);
    ASSERT_EQ(counters[0].hits.size(), hits.size());
    std::size_t i = 0;
    for (const auto& [key, count] : hits) {
      EXPECT_EQ(counters[0].hits[i++],
                (AttachmentCounters::Hit{LayerId{key.first}, ExpertId{key.second}, count}));
    }
    engine_->Close(source.grant.request_ring.attachment);
    engine_->Close(other.grant.request_ring.attachment);
    EXPECT_TRUE(engine_->CountersOf(source.order.session).empty());
  }
}

TEST_F(ExpertEngineTest, CountsNanRowsAndKeepsTheOthersBitEqual) {
  const Source source = Attach(DispatchMode::kNormal);
  TestRequest request = Request(source, 101);
  ASSERT_GT(request.header.rows, 2U);
  request.rows[24 + 3] = FloatToBf16(std::numeric_limits<float>::quiet_NaN());
  Deliver(source, request);

  engine_->Poll(now_);

  const ReadReply reply = Next();
  for (std::size_t i = 0; i < reply.rows.size(); ++i) {
    if (i / 24 == 1) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(reply.rows[i])));
    } else {
      EXPECT_EQ(reply.rows[i], request.expected[i]);
    }
  }
  EXPECT_EQ(engine_->stats().nan_rows, 1U);
  EXPECT_EQ(engine_->CountersOf(source.order.session)[0].nan_rows, 1U);
}

TEST_F(ExpertEngineTest, PollAllocatesNothing) {
  for (const DispatchMode mode : kBothModes) {
    const Source source = Attach(mode, 1);
    const Source other = Attach(mode, 2);
    const auto frame = Encode(Request(source, 111, 0));
    const auto other_frame = Encode(Request(other, 112, 3, 1));
    for (int round = 0; round < 3; ++round) {
      transport_.Deliver(source.link, 0, frame);
      transport_.Deliver(other.link, 3, other_frame);
      const std::uint64_t before = AllocationsOfThisThread();

      engine_->Poll(now_);

      EXPECT_EQ(AllocationsOfThisThread() - before, 0U) << "round " << round;
      Next();
      Next();
    }
  }
}

// A millisecond passes with each reading.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(TimePoint from) : now_(from) {}
  [[nodiscard]] TimePoint Now() const override { return now_ += std::chrono::milliseconds(1); }

 private:
  mutable TimePoint now_;
};

std::vector<TraceRecord> TakeAll(TraceRing* ring) {
  std::vector<TraceRecord> records;
  TraceRecord record;
  while (ring->Pop(&record)) records.push_back(record);
  return records;
}

TEST_F(ExpertEngineTest, WritesDownWhatItDidForTracedRequests) {
  const auto ring = std::make_shared<TraceRing>();
  options_.tracer = std::make_shared<StepTracer>(ring);
  const TickingClock clock(now_);
  options_.clock = &clock;
  Restart();
  const Source source = Attach(DispatchMode::kNormal);
  const TestRequest request = Request(source, 5, 1);
  ExpectServed(source, request);
  EXPECT_TRUE(ring->empty()) << "off by default";

  options_.tracer->SetRatio(1);
  transport_.Deliver(source.link, request.header.request_slot, Encode(request));
  const std::uint64_t before = AllocationsOfThisThread();
  engine_->Poll(now_);
  EXPECT_EQ(AllocationsOfThisThread() - before, 0U);
  Next();

  const std::vector<TraceRecord> records = TakeAll(ring.get());
  ASSERT_EQ(records.size(), 1U);
  const TraceRecord& record = records[0];
  EXPECT_EQ(record.part, TracedPart::kServe);
  // As the source has it in its frame: both come to the same ids.
  EXPECT_EQ(record.key.session, source.order.session);
  EXPECT_EQ(record.key.source, request.header.source_incarnation);
  EXPECT_EQ(record.key.step, request.header.step);
  EXPECT_EQ(record.chunk, request.header.chunk);
  EXPECT_EQ(record.rows, request.header.rows);
  EXPECT_EQ(record.layer, request.header.layer);
  EXPECT_EQ(record.epoch, request.header.epoch);
  EXPECT_EQ(std::string(record.worker.data()), "w1");
  EXPECT_EQ(record.code, absl::StatusCode::kOk);
  EXPECT_TRUE(std::is_sorted(record.times.begin(), record.times.end()));
  EXPECT_GT(record.times[0], now_) << "when the frame was seen, not when the poll began";
  EXPECT_LT(record.times[1], record.times[2]);
}

TEST_F(ExpertEngineTest, TracedRequestsThatAreRefusedSayWhy) {
  const auto ring = std::make_shared<TraceRing>();
  options_.tracer = std::make_shared<StepTracer>(ring);
  options_.tracer->SetRatio(1);
  Restart();
  const Source source = Attach(DispatchMode::kNormal);
  TestRequest request = Request(source, 5);
  request.header.epoch = Epoch{9};

  Deliver(source, request);
  engine_->Poll(now_);

  EXPECT_EQ(Next().header.kind, FrameKind::kError);
  const std::vector<TraceRecord> records = TakeAll(ring.get());
  ASSERT_EQ(records.size(), 1U);
  EXPECT_NE(records[0].code, absl::StatusCode::kOk);
  EXPECT_NE(records[0].reason, Reason::kUnspecified);
  EXPECT_EQ(records[0].times[1], TimePoint{}) << "it was in no batch";
}

Duration SumOf(const Histogram& histogram) { return Duration(histogram.Counts().sum); }

TEST_F(ExpertEngineTest, MeasuresThePartsOfARequest) {
  const TickingClock clock(now_);
  options_.clock = &clock;
  options_.times = std::make_shared<ExpertTimes>();
  Restart();
  const Source source = Attach(DispatchMode::kLowLatency);
  const TestRequest request = Request(source, 3);
  ExpectServed(source, request);

  // The clock is read when the batch starts, when its end is seen, and when its answer is sent.
  const BatchTimes& batch = options_.times->Of(WorkClass::kDecode, DispatchMode::kLowLatency);
  EXPECT_EQ(SumOf(batch.dispatch), std::chrono::milliseconds(1));
  EXPECT_EQ(SumOf(batch.compute), std::chrono::milliseconds(1));
  EXPECT_EQ(SumOf(batch.combine), std::chrono::milliseconds(1));
  EXPECT_EQ(batch.rows.Counts().count(), 1U);
  EXPECT_EQ(batch.rows.Counts().sum, request.header.rows);
  const Histogram& whole =
      options_.times->Request(WorkClass::kDecode, DispatchMode::kLowLatency,
                              request.header.format.dtype, LinkPath::kInProcess);
  EXPECT_EQ(whole.Counts().count(), 1U);
  EXPECT_EQ(SumOf(whole), std::chrono::milliseconds(3));
}

// An error is quick or slow for reasons of its own.
TEST_F(ExpertEngineTest, RefusalsAreNotMeasured) {
  const Source source = Attach(DispatchMode::kNormal);
  TestRequest request = Request(source, 3);
  request.header.layer = LayerId{77};
  ExpectRefused(source, request, absl::StatusCode::kNotFound, Reason::kUnknownLayer);

  EXPECT_EQ(engine_->stats().refused, 1U);
  const BatchTimes& batch = options_.times->Of(WorkClass::kPrefill, DispatchMode::kNormal);
  EXPECT_EQ(batch.dispatch.Counts().count(), 0U);
  EXPECT_EQ(batch.rows.Counts().count(), 0U);
}

}  // namespace
}  // namespace switchyard
