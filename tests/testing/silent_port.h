// A port of the loopback interface that takes no connection to a program.
#pragma once

#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "worker/transport/descriptor.h"

namespace switchyard::testing {

// Until Listen connections are refused. Afterwards they are established and nobody accepts them,
// like those to a host whose firewall drops what follows.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  void Listen() { EXPECT_EQ(::listen(socket_.get(), 4), 0); }
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }

 private:
  const Descriptor socket_;
  std::string endpoint_;
};

}  // namespace switchyard::testing
