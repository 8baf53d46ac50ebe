#include "services/convert/work_times.h"

#include <chrono>

#include "gtest/gtest.h"

#include "services/convert/control.h"
#include "tests/services/convert/convert_testing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;

// Round trips of random ones are in control_test.cc, as a part of heartbeats.

v1::SessionRequest AHeartbeat() {
  WorkTimes times{.kind = WorkKind::kDecode};
  times.step.Observe(std::chrono::microseconds(30));
  times.step.Observe(std::chrono::milliseconds(3));
  return ToProto(WorkerMessage(Heartbeat{.times = {times}}));
}

std::vector<WorkTimes> TimesIn(const v1::SessionRequest& proto) {
  const auto message = FromProto(proto);
  EXPECT_TRUE(message.ok()) << message.status();
  return message.ok() ? std::get<Heartbeat>(*message).times : std::vector<WorkTimes>();
}

TEST(WorkTimesConversionTest, ZerosAtTheEndTakeNoBytes) {
  const v1::SessionRequest proto = AHeartbeat();

  const v1::WorkTimes& times = proto.heartbeat().times(0);
  EXPECT_EQ(times.step().buckets_size(), 9) << "10, 20, 50, 100, 200, 500 us, 1, 2, 5 ms";
  EXPECT_EQ(times.step().buckets(2), 1U);
  EXPECT_EQ(times.step().buckets(8), 1U);
  EXPECT_EQ(times.step().sum().nanos(), 3'030'000);
  EXPECT_FALSE(times.has_queue());
  EXPECT_LT(proto.ByteSizeLong(), 40U);
}

// Old workers send none, which is not the same as a worker whose steps take no time.
TEST(WorkTimesConversionTest, AHeartbeatNeedNotHaveAny) {
  v1::SessionRequest proto = AHeartbeat();
  proto.mutable_heartbeat()->clear_times();

  EXPECT_TRUE(TimesIn(proto).empty());
}

TEST(WorkTimesConversionTest, KindsOfALaterVersionAreLeftOut) {
  v1::SessionRequest proto = AHeartbeat();
  v1::WorkTimes& later = *proto.mutable_heartbeat()->add_times();
  later = proto.heartbeat().times(0);
  later.set_kind(static_cast<v1::WorkKind>(v1::WorkKind_MAX + 1));

  const std::vector<WorkTimes> times = TimesIn(proto);

  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].kind, WorkKind::kDecode);
}

TEST(WorkTimesConversionTest, RefusesWhatNoWorkerSends) {
  const auto expect = [](const std::string& field, auto change) {
    v1::SessionRequest proto = AHeartbeat();
    change(*proto.mutable_heartbeat());
    ExpectRefuses(FromProto(proto), "SessionRequest.heartbeat." + field);
  };
  expect("times[0].kind", [](auto& heartbeat) { *heartbeat.add_times() = heartbeat.times(0); });
  expect("times[0].kind",
         [](auto& heartbeat) { heartbeat.mutable_times(0)->set_kind(v1::WORK_KIND_UNSPECIFIED); });
  expect("times[0].step", [](auto& heartbeat) { heartbeat.mutable_times(0)->clear_step(); });
  expect("times[0].step.buckets", [](auto& heartbeat) {
    while (heartbeat.times(0).step().buckets_size() <= 20) {
      heartbeat.mutable_times(0)->mutable_step()->add_buckets(1);
    }
  });
  expect("times[0].step.sum", [](auto& heartbeat) {
    heartbeat.mutable_times(0)->mutable_step()->mutable_sum()->set_seconds(-1);
  });
  expect("times", [](auto& heartbeat) {
    while (heartbeat.times_size() <= kWorkTimesMax) heartbeat.add_times();
  });
}

}  // namespace
}  // namespace switchyard
