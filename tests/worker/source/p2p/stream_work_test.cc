#include "worker/source/p2p/stream_work.h"

#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "tests/testing/held_stream.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::HeldStream;

class StreamWorkTest : public ::testing::Test {
 protected:
  absl::Status Encode(std::uint32_t chunk, const std::vector<PlannedRow>& rows,
                      std::vector<Bf16>* out) {
    out->assign(rows.size(), 0);
    SY_RETURN_IF_ERROR(stream_.Encode({.codec = codec_.get(),
                                       .x = x_.data(),
                                       .x_stride = 1,
                                       .indices = work_.Indices(rows),
                                       .hidden = 1,
                                       .data = reinterpret_cast<std::byte*>(out->data()),
                                       .scales = nullptr}));
    return work_.Record({StreamWork::Kind::kFrame, nullptr, chunk, {}});
  }

  std::unique_ptr<DeviceBackend> device_ = *CpuBackend::Create({.kernel_family = "portable_fp32"});
  std::unique_ptr<Codec> codec_ = *device_->MakeCodec({.format = kBf16Format});
  HeldStream stream_{*device_->MakeStream({})};
  StreamWork work_{&stream_};
  std::vector<Bf16> x_{10, 11, 12, 13};
};

TEST_F(StreamWorkTest, EndsInTheCallOfADeviceThatWorksInIt) {
  std::vector<Bf16> out;
  SY_ASSERT_OK(Encode(7, {{.token = 2}, {.token = 0}}, &out));

  const auto ended = work_.TakeEnded();
  ASSERT_TRUE(ended.has_value());
  SY_EXPECT_OK(ended->status);
  EXPECT_EQ(ended->piece.chunk, 7U);
  EXPECT_EQ(out, (std::vector<Bf16>{12, 10}));
  EXPECT_TRUE(work_.empty());
  EXPECT_FALSE(work_.TakeEnded().has_value());
}

TEST_F(StreamWorkTest, GivesPiecesBackInOrderAndKeepsTheirIndicesApart) {
  stream_.Hold();
  std::vector<Bf16> first;
  std::vector<Bf16> second;
  SY_ASSERT_OK(Encode(1, {{.token = 1}}, &first));
  SY_ASSERT_OK(Encode(2, {{.token = 3}}, &second));
  EXPECT_FALSE(work_.TakeEnded().has_value());

  stream_.FailNext(absl::InternalError("broken"));
  stream_.ReleaseAll();

  const auto one = work_.TakeEnded();
  const auto two = work_.TakeEnded();
  ASSERT_TRUE(one.has_value() && two.has_value());
  EXPECT_EQ(one->piece.chunk, 1U);
  EXPECT_FALSE(one->status.ok());
  EXPECT_EQ(two->piece.chunk, 2U);
  SY_EXPECT_OK(two->status);
  EXPECT_EQ(second, std::vector<Bf16>{13});
}

TEST_F(StreamWorkTest, LeavesRoomForASumOfEachStep) {
  stream_.Hold();
  std::vector<std::vector<Bf16>> outs(StreamWork::kEncodesMax);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    ASSERT_TRUE(work_.has_room_for_encode());
    SY_ASSERT_OK(Encode(static_cast<std::uint32_t>(i), {{.token = 0}}, &outs[i]));
  }
  EXPECT_FALSE(work_.has_room_for_encode());
  const std::vector<std::uint32_t> begin{0, 0};
  float y = 1;
  const SumRun sum{.terms = {}, .weights = {}, .begin = begin, .hidden = 1, .y = &y, .y_stride = 1};
  for (std::size_t i = outs.size(); i < StreamWork::kPiecesMax; ++i) {
    SY_ASSERT_OK(stream_.Sum(sum));
    SY_ASSERT_OK(work_.Record({.kind = StreamWork::Kind::kSum}));
  }

  work_.WaitForOldest();
  EXPECT_EQ(stream_.waits(), 1);
  stream_.ReleaseAll();
  std::size_t taken = 0;
  while (work_.TakeEnded().has_value()) ++taken;
  EXPECT_EQ(taken, StreamWork::kPiecesMax);
  EXPECT_EQ(y, 0);
}

}  // namespace
}  // namespace switchyard
