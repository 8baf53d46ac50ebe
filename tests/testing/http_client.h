// A client of HTTP that sends any bytes, at any speed, over a socket of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "worker/transport/descriptor.h"

namespace switchyard::testing {

struct HttpReply {
  int code = 0;  // 0: no reply
  std::string head;
  std::string body;
};

class HttpConnection {
 public:
  // `endpoint` is at the loopback interface.
  explicit HttpConnection(const std::string& endpoint)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(endpoint.substr(endpoint.rfind(':') + 1), &port));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }

  [[nodiscard]] bool connected() const { return connected_; }
  // False when the server has closed the connection.
  [[nodiscard]] bool Send(const std::string& bytes) const {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // All that comes until the server closes; `closed` is false if it does not within `timeout`.
  std::string ReadAll(Duration timeout, bool* closed = nullptr) const {
    const TimePoint end = SteadyClock().Now() + timeout;
    std::string all;
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - SteadyClock().Now()).count();
      pollfd readable{socket_.get(), POLLIN, 0};
      char buffer[4096];
      const bool ready = left > 0 && ::poll(&readable, 1, static_cast<int>(left)) == 1;
      const ssize_t got = ready ? ::recv(socket_.get(), buffer, sizeof(buffer), 0) : -1;
      if (closed != nullptr) *closed = ready && got <= 0;
      if (got <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(got));
    }
  }

 private:
  const Descriptor socket_;
  bool connected_ = false;
};

inline HttpReply ParseHttpReply(const std::string& text) {
  HttpReply reply;
  const std::size_t end = text.find("\r\n\r\n");
  if (text.rfind("HTTP/1.1 ", 0) != 0 || end == std::string::npos) return reply;
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(9, 3), &reply.code)) << text;
  reply.head = text.substr(0, end + 2);
  reply.body = text.substr(end + 4);
  return reply;
}

// One request on a connection of its own.
inline HttpReply HttpRequest(const std::string& endpoint, const std::string& path,
                             const std::string& method = "GET",
                             Duration timeout = std::chrono::seconds(20),
                             const std::string& host = "localhost") {
  const HttpConnection connection(endpoint);
  const std::string request =
      absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n");
  if (!connection.connected() || !connection.Send(request)) return {};
  return ParseHttpReply(connection.ReadAll(timeout));
}

}  // namespace switchyard::testing
