#include "worker/expert/request_intake.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FakeDevice;
using testing::LayerOf;
using testing::MakeAttachRequest;
using testing::MakePlan;
using testing::MakeStaged;
using testing::MakeTestStep;
using testing::TestLayer;
using testing::TestModel;
using testing::TestRequest;

constexpr DispatchMode kModes[] = {DispatchMode::kNormal, DispatchMode::kLowLatency};

class RequestIntakeTest : public ::testing::Test {
 protected:
  RequestIntakeTest() : staged_(MakeStaged(1, MakePlan(1, 2), &device_)) {}

  TestRequest Request(DispatchMode mode, std::uint64_t seed, std::int32_t tokens = 6) {
    SeededRng rng(seed);
    const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{1});
    return MakeRequest(MakeAttachRequest(MakePlan(1, 2), mode), {}, layer,
                       MakeTestStep(rng, layer, tokens, mode, 0.0), WorkerOrdinal{1});
  }
  IntakeRules Rules(DispatchMode mode) {
    return {.worker_id = "w1",
            .shape = TestModel().shape,
            .mode = mode,
            .runtime = staged_.runtime.get(),
            .reply_slot_bytes = 8192};
  }
  // `bytes_` is the slot that the intake looks into.
  RequestIntake TakeIn(const IntakeRules& rules, const TestRequest& request) {
    bytes_ = Encode(request);
    std::memcpy(raw_.data(), bytes_.data(), raw_.size());
    copy_.assign(MetadataWordsMax(8192, TestModel().shape), 0xdeadbeefU);
    return TakeInRequest(rules,
                         {.raw = &raw_,
                          .header = &request.header,
                          .payload = std::span(bytes_).subspan(kFrameHeaderBytes)},
                         copy_);
  }

  FakeDevice device_;
  StagedEpoch staged_;
  std::vector<std::byte> bytes_;
  HeaderBytes raw_{};
  std::vector<std::uint32_t> copy_;
};

TEST_F(RequestIntakeTest, FindsLayerRowsAndMetadata) {
  for (const DispatchMode mode : kModes) {
    const TestRequest request = Request(mode, 1);

    const RequestIntake intake = TakeIn(Rules(mode), request);

    EXPECT_EQ(intake.drop, FrameDrop::kNone);
    SY_ASSERT_OK(intake.refusal);
    EXPECT_EQ(intake.layer, staged_.runtime->FindLayer(LayerId{1}));
    EXPECT_EQ(intake.view.rows(), request.header.rows);
    EXPECT_EQ(std::memcmp(intake.rows, request.rows.data(), request.rows.size() * 2), 0);
  }
}

TEST_F(RequestIntakeTest, LooksAtItsCopyAloneOnceItHasIt) {
  const RequestIntake intake =
      TakeIn(Rules(DispatchMode::kNormal), Request(DispatchMode::kNormal, 2));
  std::vector<std::int32_t> slots;
  for (std::uint32_t row = 0; row < intake.view.rows(); ++row) {
    slots.push_back(intake.view.slot(row, 0));
  }

  std::fill(bytes_.begin(), bytes_.end(), std::byte{0x7f});  // The peer scribbles.

  for (std::uint32_t row = 0; row < intake.view.rows(); ++row) {
    EXPECT_EQ(intake.view.slot(row, 0), slots[row]);
  }
}

// A frame of an unknown epoch is believed by its CRC, whatever number of slots it was made for.
TEST_F(RequestIntakeTest, TellsStaleFramesFromForgedOnesWithoutTheirEpoch) {
  for (const DispatchMode mode : kModes) {
    IntakeRules rules = Rules(mode);
    rules.runtime = nullptr;
    for (const std::size_t extra_slots : {0, 1, 3}) {
      TestRequest request = Request(mode, 3);
      if (mode == DispatchMode::kLowLatency) {
        request.metadata.insert(request.metadata.begin(), 4 * extra_slots, std::byte{0});
        request.header.payload_bytes =
            LayoutOfRequest({.mode = mode,
                             .rows = request.header.rows,
                             .hidden = 24,
                             .top_k = 3,
                             .local_slots = static_cast<std::int32_t>(3 + extra_slots)})
                .payload_bytes();
      }

      EXPECT_THAT(TakeIn(rules, request).refusal,
                  FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));

      request.metadata.back() ^= std::byte{1};
      TestRequest forged = request;
      bytes_ = Encode(request);
      HeaderBytes right_crc;
      std::memcpy(right_crc.data(), bytes_.data(), right_crc.size());
      bytes_[kFrameHeaderBytes + request.metadata.size() - 1] ^= std::byte{1};
      const RequestIntake intake =
          TakeInRequest(rules,
                        {.raw = &right_crc,
                         .header = &forged.header,
                         .payload = std::span(bytes_).subspan(kFrameHeaderBytes)},
                        copy_);
      EXPECT_EQ(intake.drop, FrameDrop::kCrc);
      SY_EXPECT_OK(intake.refusal);
    }
  }
}

// R127: scales of one byte and of four are told apart by the header alone, in frames of an unknown
// epoch too; and rows with the other kind of scales are no rows of the layer.
TEST_F(RequestIntakeTest, TheHeaderSaysWhichScalesAFrameHas) {
  for (const WireFormat& format : {kFp8Format, kFp8Ue8m0Format}) {
    for (const DispatchMode mode : kModes) {
      SCOPED_TRACE(absl::StrCat(WireFormatName(format), " ", DispatchModeName(mode)));
      TestRequest request = Request(mode, 6, 40);
      request.header.format = format;
      const FrameLayout layout = LayoutOfRequest({.mode = mode,
                                                  .format = format,
                                                  .rows = request.header.rows,
                                                  .hidden = 24,
                                                  .top_k = 3,
                                                  .local_slots = 3});
      request.header.payload_bytes = layout.payload_bytes();
      request.rows.resize(std::size_t{request.header.rows} * 24 / sizeof(Bf16));
      IntakeRules rules = Rules(mode);

      EXPECT_THAT(TakeIn(rules, request).refusal,
                  FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadDtype));
      rules.runtime = nullptr;
      EXPECT_THAT(TakeIn(rules, request).refusal,
                  FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
    }
  }
}

TEST_F(RequestIntakeTest, DropsSizesThatNoNumberOfSlotsExplains) {
  IntakeRules rules = Rules(DispatchMode::kLowLatency);
  rules.runtime = nullptr;
  TestRequest request = Request(DispatchMode::kLowLatency, 4);
  request.header.payload_bytes += 256;

  EXPECT_EQ(TakeIn(rules, request).drop, FrameDrop::kLength);
}

// R63: FP16 is no dtype of a frame; of those that are, only the plan's are taken.
TEST_F(RequestIntakeTest, RefusesADtypeThatThePlanDoesNotName) {
  TestRequest request = Request(DispatchMode::kLowLatency, 5);
  request.header.format = kInt8Format;
  request.header.payload_bytes = LayoutOfRequest({.mode = DispatchMode::kLowLatency,
                                                  .format = kInt8Format,
                                                  .rows = request.header.rows,
                                                  .hidden = 24,
                                                  .top_k = 3,
                                                  .local_slots = 3})
                                     .payload_bytes();
  request.rows.resize(4);

  EXPECT_THAT(TakeIn(Rules(DispatchMode::kLowLatency), request).refusal,
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadDtype));
}

TEST_F(RequestIntakeTest, MetadataWordsMaxHoldsEveryRequestOfASlot) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SeededRng rng(seed);
    const MoeShape shape{.hidden = static_cast<std::int32_t>(8 + 8 * rng.Below(64)),
                         .intermediate = 8,
                         .experts = static_cast<std::int32_t>(1 + rng.Below(256)),
                         .top_k = static_cast<std::int32_t>(1 + rng.Below(16))};
    const std::size_t slot_bytes = 512 + rng.Below(1 << 16);
    for (const DispatchMode mode : kModes) {
      for (const std::int32_t slots : {0, 1, shape.experts}) {
        for (std::uint32_t rows = 1; rows < 4000; ++rows) {
          const FrameLayout layout = LayoutOfRequest({.mode = mode,
                                                      .rows = rows,
                                                      .hidden = shape.hidden,
                                                      .top_k = shape.top_k,
                                                      .local_slots = slots});
          if (layout.frame_bytes > slot_bytes) break;
          ASSERT_LE(layout.metadata_bytes, 4 * MetadataWordsMax(slot_bytes, shape));
        }
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
