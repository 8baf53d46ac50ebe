#include "services/coordinator/live_page.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

#include "services/convert/plan.h"
#include "services/coordinator/admin_queries.h"
#include "tests/services/coordinator/large_view.h"
#include "tests/testing/http_client.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::HttpReply;
using testing::HttpRequest;
using testing::LargeView;
using ::testing::Not;

class LivePageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(server_, HttpServer::Start({}, LivePages(large_.Sources())));
  }
  HttpReply Get(const std::string& path) { return HttpRequest(server_->endpoint(), path); }
  // The answer as the message that it is made of.
  template <typename Message>
  Message Read(const std::string& path) {
    Message message;
    const HttpReply reply = Get(path);
    EXPECT_EQ(reply.code, 200) << path;
    EXPECT_THAT(reply.head, HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(reply.body, &message).ok()) << path;
    return message;
  }

  LargeView large_{20};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(LivePageTest, AnswersAreTheMessagesOfTheCalls) {
  EXPECT_EQ(Read<v1::ListWorkersResponse>("/api/v1/workers").SerializeAsString(),
            ListWorkers(large_.view).SerializeAsString());
  EXPECT_EQ(Read<v1::ListDeploymentsResponse>("/api/v1/deployments").SerializeAsString(),
            ListDeployments(large_.view).SerializeAsString());
  EXPECT_EQ(Read<v1::ListSessionsResponse>("/api/v1/sessions").SerializeAsString(),
            ListSessions(large_.sessions).SerializeAsString());
  v1::ListEventsRequest events;
  events.set_after(900);
  EXPECT_EQ(Read<v1::ListEventsResponse>("/api/v1/events?after=900").SerializeAsString(),
            ListEvents(large_.journal.After(0), events).SerializeAsString());
  v1::GetPlanRequest plan;
  plan.set_deployment("chat");
  SY_ASSERT_OK_AND_ASSIGN(const v1::GetPlanResponse expected, GetPlan(large_.view, plan));
  EXPECT_EQ(Read<v1::GetPlanResponse>("/api/v1/plan?deployment=chat").SerializeAsString(),
            expected.SerializeAsString());
  const auto load =
      Read<v1::GetLoadResponse>("/api/v1/load?deployment=chat&after=3&before=9&limit=4");
  ASSERT_EQ(load.samples_size(), 4);
  EXPECT_EQ(load.samples(0).number(), 5U);
}

TEST_F(LivePageTest, WhatHasNotChangedIsNotSentAgain) {
  const HttpReply first = Get("/api/v1/plan?deployment=chat");
  const std::size_t at = first.head.find("ETag: ");
  ASSERT_NE(at, std::string::npos);
  const std::string etag = first.head.substr(at + 6, first.head.find('\r', at) - at - 6);
  const testing::HttpConnection connection(server_->endpoint());
  ASSERT_TRUE(connection.Send(
      absl::StrCat("GET /api/v1/plan?deployment=chat HTTP/1.1\r\nHost: localhost\r\n",
                   "If-None-Match: ", etag, "\r\n\r\n")));

  const HttpReply again = testing::ParseHttpReply(connection.ReadAll(std::chrono::seconds(20)));

  EXPECT_EQ(again.code, 304);
  EXPECT_EQ(again.body, "");
}

// A page of somebody else's that gave its name this server's address gets nothing.
TEST_F(LivePageTest, NothingIsShownUnderAForeignName) {
  for (const HttpPage& page : LivePages({})) {
    const HttpReply reply = testing::HttpRequest(server_->endpoint(), page.path, "GET",
                                                 std::chrono::seconds(20), "stranger.example:80");
    EXPECT_EQ(reply.code, 421) << page.path;
  }
}

TEST_F(LivePageTest, FailuresAreStatusesUnderTheirHttpCode) {
  const auto expect = [&](const std::string& path, int code, const std::string& reason) {
    const HttpReply reply = Get(path);
    EXPECT_EQ(reply.code, code) << path;
    EXPECT_THAT(reply.body, HasSubstr(reason)) << path;
    EXPECT_THAT(reply.head, HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_THAT(reply.head, Not(HasSubstr("ETag")));
  };
  expect("/api/v1/plan", 400, "BAD_REQUEST");  // there are two
  expect("/api/v1/plan?deployment=batch", 503, "NOT_READY");
  expect("/api/v1/load?deployment=%3Cscript%3E", 404, "UNKNOWN_MODEL");
  expect("/api/v1/layer?deployment=chat&layer=x", 400, "BAD_REQUEST");
  expect("/api/v1/layer?deployment=chat&layer=999", 404, "UNKNOWN_LAYER");
  expect("/api/v1/events?after=-1", 400, "BAD_REQUEST");
  // A name of bytes that are no text does not break the answer.
  EXPECT_EQ(Get("/api/v1/load?deployment=%FF%FE").code, 404);
}

TEST_F(LivePageTest, FilesComeFromTheProgramUnderAStrictPolicy) {
  const HttpReply page = Get("/");
  EXPECT_EQ(page.code, 200);
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  for (const EmbeddedFile& file : LivePageFiles()) {
    const std::string path =
        absl::string_view(file.name) == "index.html" ? "/" : absl::StrCat("/ui/", file.name);
    const HttpReply reply = Get(path);
    EXPECT_EQ(reply.code, 200) << path;
    EXPECT_EQ(reply.body, file.contents) << path;
    EXPECT_THAT(reply.head, HasSubstr("Content-Security-Policy: default-src 'none';")) << path;
    EXPECT_THAT(reply.head, Not(HasSubstr("unsafe"))) << path;
    EXPECT_THAT(reply.head, HasSubstr("X-Content-Type-Options: nosniff\r\n")) << path;
    EXPECT_THAT(reply.head, HasSubstr("ETag: ")) << path;
    // No file names another host, and each that the page names is there.
    EXPECT_FALSE(absl::StrContains(file.contents, "https://")) << path;
    EXPECT_FALSE(absl::StrContains(file.contents, "innerHTML")) << path;
    if (path != "/") {
      EXPECT_THAT(page.body, HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace switchyard
