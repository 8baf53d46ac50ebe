#include "client/status_json.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"

namespace switchyard {
namespace {

TEST(StatusJsonTest, SaysCodeReasonTextAndMetadataOfAnError) {
  const absl::Status error = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                                       "worker \"w1\" is\ngone", {{"worker", "w1"}});

  const auto json = nlohmann::json::parse(ErrorJson(error));

  EXPECT_EQ(json["code"], "UNAVAILABLE");
  EXPECT_EQ(json["reason"], "WORKER_LOST");
  EXPECT_EQ(json["message"], "worker \"w1\" is\ngone");
  EXPECT_EQ(json["metadata"]["worker"], "w1");
  EXPECT_EQ(ErrorJson(absl::OkStatus()), "{}");
}

TEST(StatusJsonTest, ReplacesBytesThatAreNotUtf8) {
  const auto json = nlohmann::json::parse(ErrorJson(absl::InvalidArgumentError("bad \xff byte")));

  EXPECT_EQ(json["message"], "bad \xef\xbf\xbd byte");
}

TEST(StatusJsonTest, ReportHoldsPlanConfigsAndCountersAndNoSecret) {
  SessionReport report;
  report.grant.session = {1, 2};
  report.grant.cookie = Cookie{0x1234567890abcdefULL};
  report.grant.request.mode = DispatchMode::kLowLatency;
  report.grant.request.phase = Phase::kDecode;
  Plan& plan = report.grant.plan;
  plan.deployment = "d";
  plan.epoch = Epoch{7};
  plan.shape = {.hidden = 64, .intermediate = 32, .experts = 2, .top_k = 1};
  plan.workers = {{"w0", {3, 4}, "secret-host:1", DeviceKind::kCpu, "amx_bf16"}};
  plan.layers = {{LayerId{5}, {{ExpertId{1}, WorkerOrdinal{0}, SlotId{0}}}}};
  DispatchConfig config;
  config.layer = LayerId{5};
  config.phase = Phase::kDecode;
  config.trail = {"because"};
  plan.configs = {config};
  AttachmentCounters counters;
  counters.rows = 11;
  counters.hits = {{LayerId{5}, ExpertId{1}, 11}};
  report.workers = {{"w0", {counters}}, {"w1", {}}};
  report.asked = {absl::OkStatus(),
                  MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "silent")};
  report.traces = TraceCounts{.exported = 8, .failed = 4, .dropped = 1};

  const std::string text = ReportJson(report);

  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["plan"]["epoch"], 7);
  EXPECT_EQ(json["supports_graphs"], true);
  EXPECT_FALSE(json.contains("no_graphs_because"));
  EXPECT_EQ(json["plan"]["layers"][0]["experts"][0]["worker"], "w0");
  EXPECT_EQ(json["plan"]["configs"][0]["trail"][0], "because");
  EXPECT_EQ(json["workers"][0]["attachments"][0]["hits"][0]["rows"], 11);
  EXPECT_FALSE(json["workers"][0].contains("error"));
  EXPECT_EQ(json["workers"][1]["error"]["reason"], "WORKER_LOST");
  EXPECT_EQ(json["traces"]["spans_exported"], 8);
  EXPECT_EQ(json["traces"]["spans_failed"], 4);
  EXPECT_EQ(json["traces"]["records_dropped"], 1);
  EXPECT_EQ(text.find("1311768467294899695"), std::string::npos);  // the cookie, in decimal
  EXPECT_EQ(text.find("secret-host"), std::string::npos);
}

// R42
TEST(StatusJsonTest, ASessionOfModeNormalHasNoGraphsAndSaysWhy) {
  SessionReport report;
  report.grant.request.mode = DispatchMode::kNormal;

  const auto json = nlohmann::json::parse(ReportJson(report));

  EXPECT_EQ(json["supports_graphs"], false);
  EXPECT_FALSE(json.contains("traces")) << "as through a gateway";
  EXPECT_NE(json["no_graphs_because"].get<std::string>().find("normal"), std::string::npos);
}

}  // namespace
}  // namespace switchyard
