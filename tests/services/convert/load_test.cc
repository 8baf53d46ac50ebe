#include "services/convert/load.h"

#include "gtest/gtest.h"

#include "services/convert/control.h"
#include "services/grpc/grpc_constants.h"
#include "tests/services/convert/convert_testing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;

// Round trips of random ones are in control_test.cc, as a part of heartbeats.

TEST(LoadConversionTest, EachExpertHasItsRows) {
  v1::SessionRequest proto = ToProto(WorkerMessage(Heartbeat{
      .load = {{"demo", Epoch{3}, {{LayerId{1}, ExpertId{2}, 9}, {LayerId{1}, ExpertId{4}, 8}}}}}));
  ASSERT_EQ(proto.heartbeat().load(0).layers_size(), 1);
  SY_EXPECT_OK(FromProto(proto));

  proto.mutable_heartbeat()->mutable_load(0)->mutable_layers(0)->add_experts(5);

  ExpectRefuses(FromProto(proto), "SessionRequest.heartbeat.load[0].layers");
}

// The largest heartbeat that a worker sends is accepted and small, one more entry is refused.
TEST(LoadConversionTest, BoundsTheExpertsOfOneReport) {
  LoadReport report{"demo", Epoch{3}, {}};
  for (std::size_t i = 0; i < kLoadExpertsMax; ++i) {
    report.experts.push_back({LayerId{static_cast<std::int32_t>(i / 256)},
                              ExpertId{static_cast<std::int32_t>(i % 256)}, 0xFFFFFFFFU});
  }
  const v1::SessionRequest full = ToProto(WorkerMessage(Heartbeat{.load = {report}}));
  EXPECT_LT(full.ByteSizeLong(), kSmallMessageBytesMax);
  SY_EXPECT_OK(FromProto(full));

  report.experts.push_back({LayerId{1000}, ExpertId{0}, 1});

  ExpectRefuses(FromProto(ToProto(WorkerMessage(Heartbeat{.load = {report}}))),
                "SessionRequest.heartbeat.load[0].layers");
}

TEST(LoadConversionTest, BoundsTheReportsOfOneHeartbeat) {
  Heartbeat heartbeat;
  heartbeat.load.resize(kLoadReportsMax);
  SY_EXPECT_OK(FromProto(ToProto(WorkerMessage(heartbeat))));

  heartbeat.load.emplace_back();

  ExpectRefuses(FromProto(ToProto(WorkerMessage(heartbeat))), "SessionRequest.heartbeat.load");
}

}  // namespace
}  // namespace switchyard
