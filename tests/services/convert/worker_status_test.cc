#include "services/convert/worker_status.h"

#include "gtest/gtest.h"

#include "tests/services/convert/random_messages.h"

namespace switchyard {
namespace {

TEST(ConvertWorkerStatusTest, EveryFigureHasItsField) {
  testing::RandomMessages random(12);
  ExpertServiceView view;
  view.experts = {.requests = 1,
                  .rows = 2,
                  .batches = 3,
                  .refused = 4,
                  .duplicates = 5,
                  .nan_rows = 6,
                  .attachments = 7};
  view.direct = {.chunks = 17, .rows = 18, .nan_rows = 19, .failed = 20};
  view.transport.frames_in = 8;
  view.transport.frames_out = 9;
  view.transport.late_wakes = 10;
  view.transport.links_open = 11;
  view.transport.ring_bytes = 12;
  view.transport.drops[static_cast<std::size_t>(FrameDrop::kMagic)] = 13;
  view.transport.drops[static_cast<std::size_t>(FrameDrop::kTruncated)] = 14;
  view.resident = {{"d", Epoch{15}, random.Digest(), true}, {"e", Epoch{16}, {}, false}};

  v1::GetStatusResponse out;
  Encode(view, &out);

  EXPECT_EQ(out.experts().requests(), 1U);
  EXPECT_EQ(out.experts().rows(), 2U);
  EXPECT_EQ(out.experts().batches(), 3U);
  EXPECT_EQ(out.experts().refused(), 4U);
  EXPECT_EQ(out.experts().duplicates(), 5U);
  EXPECT_EQ(out.experts().nan_rows(), 6U);
  EXPECT_EQ(out.experts().attachments(), 7U);
  EXPECT_EQ(out.experts().direct_chunks(), 17U);
  EXPECT_EQ(out.experts().direct_rows(), 18U);
  EXPECT_EQ(out.experts().direct_failed(), 20U);
  EXPECT_EQ(out.transport().frames_in(), 8U);
  EXPECT_EQ(out.transport().frames_out(), 9U);
  EXPECT_EQ(out.transport().late_wakes(), 10U);
  EXPECT_EQ(out.transport().links_open(), 11U);
  EXPECT_EQ(out.transport().ring_bytes(), 12U);
  ASSERT_EQ(out.transport().drops_size(), 2);  // What never happened is left out.
  EXPECT_EQ(out.transport().drops(0).frames(), 13U);
  EXPECT_EQ(out.transport().drops(1).reason(), "truncated");
  ASSERT_EQ(out.epochs_size(), 2);
  EXPECT_EQ(out.epochs(0).deployment(), "d");
  EXPECT_EQ(out.epochs(1).epoch(), 16U);
  EXPECT_FALSE(out.epochs(1).committed());
}

}  // namespace
}  // namespace switchyard
