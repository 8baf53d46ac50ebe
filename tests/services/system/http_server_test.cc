// What clients of any kind get, and what they cannot do to others.
#include "services/system/http_server.h"

#include <atomic>
#include <future>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/http_client.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::HttpConnection;
using testing::HttpReply;
using testing::HttpRequest;

constexpr Duration kProbe = seconds(1);  // a kubelet's default
constexpr Duration kSilence = seconds(1);

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(
        server_,
        HttpServer::Start(
            {.silence_max = kSilence, .names = {"page.example"}},
            {{.path = "/quick",
              .make = [](const HttpAsk&) { return HttpAnswer{.body = "quick\n"}; }},
             {.path = "/ill",
              .make = [](const HttpAsk&) { return HttpAnswer{.code = 503, .body = "ill\n"}; }},
             {.path = "/own",
              .make = [](const HttpAsk&) { return HttpAnswer{.body = "own\n"}; },
              .work = HttpWork::kQueued,
              .own_host_only = true},
             {.path = "/slow",
              .make =
                  [this](const HttpAsk&) {
                    entered_.fetch_add(1);
                    open_.wait();
                    return HttpAnswer{.body = "slow\n"};
                  },
              .work = HttpWork::kSlow},
             {.path = "/aside",
              .make = [](const HttpAsk&) { return HttpAnswer{.body = "aside\n"}; },
              .work = HttpWork::kSlow},
             {.path = "/kept",
              .make =
                  [](const HttpAsk& ask) {
                    return HttpAnswer{.body = absl::StrCat("kept ", ask.Argument("of"), "\n"),
                                      .etag = absl::StrCat("e", ask.Argument("of")),
                                      .headers = {{"X-Content-Type-Options", "nosniff"}}};
                  },
              .work = HttpWork::kQueued},
             {.path = "/line",
              .make =
                  [this](const HttpAsk&) {
                    entered_.fetch_add(1);
                    open_.wait();
                    return HttpAnswer{.body = "line\n"};
                  },
              .work = HttpWork::kQueued}}));
  }
  // A probe of its own connection, in the time that a probe has.
  void ExpectServes() {
    const TimePoint before = SteadyClock().Now();
    const HttpReply reply = HttpRequest(server_->endpoint(), "/quick", "GET", kProbe);
    EXPECT_EQ(reply.code, 200);
    EXPECT_EQ(reply.body, "quick\n");
    EXPECT_LT(SteadyClock().Now() - before, kProbe);
  }
  // What the server says to bytes that are no request.
  std::string Say(const std::string& bytes) {
    const HttpConnection connection(server_->endpoint());
    EXPECT_TRUE(connection.Send(bytes));
    bool closed = false;
    std::string answer = connection.ReadAll(10 * kSilence, &closed);
    EXPECT_TRUE(closed) << "kept open after: " << bytes.substr(0, 40);
    return answer;
  }

  std::atomic<int> entered_{0};
  std::promise<void> gate_;
  std::shared_future<void> open_ = gate_.get_future().share();
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, APageOfItsOwnHostIsNotShownUnderOtherNames) {
  const auto code = [this](const std::string& path, const std::string& host) {
    return HttpRequest(server_->endpoint(), path, "GET", seconds(20), host).code;
  };
  for (const char* host : {"127.0.0.1", "localhost:1", "[::1]", "page.example:80"}) {
    EXPECT_EQ(code("/own", host), 200) << host;
  }
  const HttpReply foreign =
      HttpRequest(server_->endpoint(), "/own", "GET", seconds(20), "evil.example");
  EXPECT_EQ(foreign.code, 421);
  EXPECT_THAT(foreign.body, HasSubstr("--page-hosts NAME"));
  EXPECT_EQ(code("/quick", "evil.example"), 200) << "probes come by any name";
  EXPECT_THAT(Say("GET /own HTTP/1.0\r\n\r\n"), HasSubstr(" 421 ")) << "no name";
}

TEST_F(HttpServerTest, APageIsAnsweredAndTheConnectionClosed) {
  const HttpReply reply = HttpRequest(server_->endpoint(), "/quick");

  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.body, "quick\n");
  EXPECT_THAT(reply.head, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(reply.head, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(reply.head, HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/quick?x=1").code, 200);
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/ill").code, 503);
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/aside").body, "aside\n");
}

TEST_F(HttpServerTest, HeadIsAnsweredWithoutABody) {
  for (const char* path : {"/quick", "/aside"}) {
    const HttpReply reply = HttpRequest(server_->endpoint(), path, "HEAD");

    EXPECT_EQ(reply.code, 200);
    EXPECT_THAT(reply.head, HasSubstr("Content-Length: 6\r\n"));
    EXPECT_EQ(reply.body, "");
  }
}

TEST_F(HttpServerTest, OtherPagesAndMethodsAreRefused) {
  const HttpReply none = HttpRequest(server_->endpoint(), "/");
  EXPECT_EQ(none.code, 404);
  EXPECT_EQ(none.body, "no such page; there are: /quick /ill /own /slow /aside /kept /line\n");

  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "BREW"}) {
    const HttpReply reply = HttpRequest(server_->endpoint(), "/quick", method);
    EXPECT_EQ(reply.code, 405) << method;
    EXPECT_THAT(reply.head, HasSubstr("Allow: GET, HEAD\r\n"));
  }
}

TEST_F(HttpServerTest, ABodyIsNotRead) {
  EXPECT_THAT(Say("POST /quick HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nabc"),
              HasSubstr("405"));
  ExpectServes();
}

TEST_F(HttpServerTest, GarbageEndsItsConnectionOnly) {
  std::string binary(1000, '\0');
  for (std::size_t i = 0; i < binary.size(); ++i) binary[i] = static_cast<char>(i * 37);
  binary += "\r\n\r\n";
  // Of gRPC, of TLS, and of nothing.
  for (const std::string& bytes :
       {std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01", 6),
        binary, std::string("GET\r\n\r\n"), std::string("\r\n\r\n\r\n\r\n")}) {
    EXPECT_THAT(Say(bytes), ::testing::Not(HasSubstr("200 OK")));
    ExpectServes();
  }
}

TEST_F(HttpServerTest, ARequestThatIsTooLongIsRefused) {
  const HttpConnection line(server_->endpoint());
  const HttpConnection headers(server_->endpoint());
  // Either may be cut off while it is still being sent.
  [[maybe_unused]] const bool sent =
      line.Send(absl::StrCat("GET /", std::string(64 << 10, 'a'), " HTTP/1.1\r\n\r\n")) &&
      headers.Send(absl::StrCat("GET /quick HTTP/1.1\r\nHost: x\r\nX: ", std::string(64 << 10, 'a'),
                                "\r\n\r\n"));

  for (const HttpConnection* connection : {&line, &headers}) {
    bool closed = false;
    EXPECT_THAT(connection->ReadAll(seconds(4), &closed), ::testing::Not(HasSubstr("200 OK")));
    EXPECT_TRUE(closed);
  }
  ExpectServes();
}

TEST_F(HttpServerTest, TwoHundredIdleConnectionsDelayNobody) {
  std::list<HttpConnection> idle;
  for (int i = 0; i < 200; ++i) idle.emplace_back(server_->endpoint());

  for (int i = 0; i < 10; ++i) ExpectServes();

  // The oldest made room.
  bool closed = false;
  EXPECT_EQ(idle.front().ReadAll(kSilence / 2, &closed), "");
  EXPECT_TRUE(closed);
}

TEST_F(HttpServerTest, ASilentConnectionIsClosed) {
  const HttpConnection silent(server_->endpoint());
  ASSERT_TRUE(silent.Send("GET /quick HTT"));

  bool closed = false;
  EXPECT_THAT(silent.ReadAll(10 * kSilence, &closed), ::testing::Not(HasSubstr("200 OK")));
  EXPECT_TRUE(closed);
}

// One byte at a time, by more clients than there are connections.
TEST_F(HttpServerTest, SlowClientsDelayNobody) {
  std::list<HttpConnection> slow;
  for (std::size_t i = 0; i < 2 * kHttpConnectionsMax; ++i) slow.emplace_back(server_->endpoint());

  for (const char byte : std::string("GET /quick")) {
    for (const HttpConnection& each : slow) {
      [[maybe_unused]] const bool sent = each.Send(std::string(1, byte));
    }
    ExpectServes();
  }
}

TEST_F(HttpServerTest, SlowPagesAreBoundedAndDelayNoQuickOne) {
  std::vector<std::unique_ptr<HttpConnection>> waiting;
  const std::string request = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
  for (std::size_t i = 0; i < kHttpSlowPagesMax; ++i) {
    waiting.push_back(std::make_unique<HttpConnection>(server_->endpoint()));
    ASSERT_TRUE(waiting.back()->Send(request));
  }
  const TimePoint end = SteadyClock().Now() + seconds(20);
  while (entered_ < static_cast<int>(kHttpSlowPagesMax) && SteadyClock().Now() < end) {
    std::this_thread::yield();
  }

  ExpectServes();
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/slow").code, 503);
  waiting.pop_back();  // gone before its page is there

  gate_.set_value();
  EXPECT_EQ(testing::ParseHttpReply(waiting[0]->ReadAll(seconds(20))).body, "slow\n");
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/aside").code, 200);
}

TEST_F(HttpServerTest, ArgumentsAreDecodedAndHeadersSent) {
  const HttpReply reply = HttpRequest(server_->endpoint(), "/kept?of=a%20b&of=c%2Fd&x");

  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.body, "kept c/d\n");
  EXPECT_THAT(reply.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(reply.head, HasSubstr("ETag: \"ec/d\"\r\n"));
  EXPECT_THAT(reply.head, HasSubstr("Cache-Control: no-cache\r\n"));
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/kept").body, "kept \n");
}

TEST_F(HttpServerTest, ABodyThatTheClientHasIsNotSentAgain) {
  const auto ask = [&](const std::string& etags) {
    const HttpConnection connection(server_->endpoint());
    EXPECT_TRUE(connection.Send(
        absl::StrCat("GET /kept?of=1 HTTP/1.1\r\nHost: x\r\nIf-None-Match: ", etags, "\r\n\r\n")));
    return testing::ParseHttpReply(connection.ReadAll(seconds(20)));
  };

  const HttpReply same = ask("\"e0\", \"e1\"");
  const HttpReply other = ask("\"e0\"");

  EXPECT_EQ(same.code, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_THAT(same.head, HasSubstr("ETag: \"e1\"\r\n"));
  EXPECT_EQ(other.code, 200);
  EXPECT_EQ(other.body, "kept 1\n");
}

// One is made, the others wait, and neither keeps a slow page or a quick one.
TEST_F(HttpServerTest, QueuedPagesAreBoundedAndDelayNoOther) {
  constexpr std::size_t kTooMany = 4;
  std::list<HttpConnection> waiting;
  for (std::size_t i = 0; i < kHttpQueuedPagesMax + kTooMany; ++i) {
    waiting.emplace_back(server_->endpoint());
    ASSERT_TRUE(waiting.back().Send("GET /line HTTP/1.1\r\nHost: x\r\n\r\n"));
  }

  std::size_t refused = 0;
  const TimePoint end = SteadyClock().Now() + seconds(20);
  while (refused < kTooMany && SteadyClock().Now() < end) {
    refused += waiting.remove_if([](const HttpConnection& each) {
      return testing::ParseHttpReply(each.ReadAll(std::chrono::milliseconds(10))).code == 503;
    });
  }
  EXPECT_EQ(refused, kTooMany);
  while (entered_ == 0 && SteadyClock().Now() < end) std::this_thread::yield();
  EXPECT_EQ(entered_, 1);
  ExpectServes();
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/aside").code, 200);

  gate_.set_value();
  for (const HttpConnection& each : waiting) {
    EXPECT_EQ(testing::ParseHttpReply(each.ReadAll(seconds(20))).body, "line\n");
  }
  EXPECT_EQ(HttpRequest(server_->endpoint(), "/kept?of=1").code, 200);
}

TEST_F(HttpServerTest, ItsEndClosesConnectionsAndWaitsForPages) {
  const HttpConnection idle(server_->endpoint());
  const HttpConnection waiting(server_->endpoint());
  ASSERT_TRUE(waiting.Send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"));
  const TimePoint end = SteadyClock().Now() + seconds(20);
  while (entered_ == 0 && SteadyClock().Now() < end) std::this_thread::yield();
  const std::string endpoint = server_->endpoint();

  std::thread stop([this] { server_.reset(); });
  gate_.set_value();
  stop.join();

  bool closed = false;
  EXPECT_EQ(idle.ReadAll(seconds(5), &closed), "");
  EXPECT_TRUE(closed);
  EXPECT_FALSE(HttpConnection(endpoint).connected());
}

TEST_F(HttpServerTest, APortInUseIsNamed) {
  const std::string endpoint = server_->endpoint();
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(endpoint.substr(endpoint.rfind(':') + 1), &port));

  EXPECT_THAT(HttpServer::Start({.port = port}, {}),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kAddressInUse));
  EXPECT_THAT(HttpServer::Start({.host = "192.0.2.1"}, {}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
