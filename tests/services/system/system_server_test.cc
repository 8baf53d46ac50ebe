#include "services/system/system_server.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/http_client.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::HttpReply;
using testing::HttpRequest;

TEST(SystemServerTest, ProbesSayWhatIsMissing) {
  std::atomic<int> state{0};
  HealthMonitor monitor([&] {
    switch (state) {
      case 0:
        return Health{};
      case 1:
        return Health{.not_live = "", .not_ready = "no epoch; apply one"};
      default:
        return Health{.not_live = "it hangs; restart it", .not_ready = "it hangs; restart it"};
    }
  });
  SY_ASSERT_OK_AND_ASSIGN(const auto server,
                          SystemServer::Start({}, &monitor, [] { return std::string("m 1\n"); }));
  const auto expect = [&](const std::string& path, int code, const std::string& body) {
    const HttpReply reply = HttpRequest(server->endpoint(), path);
    EXPECT_EQ(reply.code, code) << path;
    EXPECT_EQ(reply.body, body) << path;
  };

  expect("/livez", 200, "ok\n");
  expect("/readyz", 200, "ok\n");
  state = 1;
  expect("/livez", 200, "ok\n");
  expect("/readyz", 503, "no epoch; apply one\n");
  state = 2;
  expect("/livez", 503, "it hangs; restart it\n");
  expect("/readyz", 503, "it hangs; restart it\n");
}

TEST(SystemServerTest, MetricsHaveTheTypeOfTheirFormat) {
  HealthMonitor monitor([] { return Health{}; });
  SY_ASSERT_OK_AND_ASSIGN(const auto server,
                          SystemServer::Start({}, &monitor, [] { return std::string("m 1\n"); }));

  const HttpReply reply = HttpRequest(server->endpoint(), "/metrics");

  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.body, "m 1\n");
  EXPECT_THAT(reply.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
}

}  // namespace
}  // namespace switchyard
