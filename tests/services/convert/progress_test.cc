#include "services/convert/progress.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "services/convert/control.h"
#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;
using testing::RandomMessages;

TEST(ConvertProgressTest, ReportsRoundTrip) {
  RandomMessages random(7);
  for (int round = 0; round < 200; ++round) {
    StagingReport report = random.Staging();
    if (round == 0) report = {"d", Epoch{3}, 0x7fffffff, 0x7fffffff, 1LL << 62, 1LL << 62};
    v1::StagingReport proto;
    Encode(report, &proto);

    Decoder at("StagingReport");
    StagingReport back;
    Decode(at, proto, &back);

    SY_ASSERT_OK(at.status());
    ASSERT_EQ(back, report) << "round " << round;
  }
}

v1::SessionRequest AHeartbeat(std::size_t reports) {
  return ToProto(WorkerMessage(Heartbeat{
      .progress = 1, .staging = std::vector(reports, StagingReport{"d", Epoch{1}, 1, 2, 10, 20})}));
}

TEST(ConvertProgressTest, RefusesReportsThatCannotBe) {
  using Damage = std::function<void(v1::StagingReport*)>;
  const std::vector<std::pair<std::string, Damage>> cases = {
      {"experts_done", [](auto* m) { m->set_experts_done(3); }},
      {"experts", [](auto* m) { m->set_experts(1U << 31); }},
      {"bytes_done", [](auto* m) { m->set_bytes_done(21); }},
      {"bytes", [](auto* m) { m->set_bytes(1ULL << 63); }},
  };
  for (const auto& [field, damage] : cases) {
    v1::SessionRequest proto = AHeartbeat(2);
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_heartbeat()->mutable_staging(1));

    ExpectRefuses(FromProto(proto), "SessionRequest.heartbeat.staging[1]." + field);
  }
}

TEST(ConvertProgressTest, RefusesMoreReportsThanAWorkerCanHave) {
  SY_EXPECT_OK(FromProto(AHeartbeat(kStagingReportsMax)));

  ExpectRefuses(FromProto(AHeartbeat(kStagingReportsMax + 1)), "SessionRequest.heartbeat.staging");
}

}  // namespace
}  // namespace switchyard
