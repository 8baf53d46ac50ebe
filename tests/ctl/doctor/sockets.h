// Sockets of the kind that rings are passed over, for tests.
#pragma once

#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace switchyard::testing {

// Binds a socket at `path` and closes it, as a process that is killed leaves it.
inline void LeaveDeadSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_GE(socket, 0);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(socket, 1), 0);
  ::close(socket);
}

// A name as the transport gives them.
inline constexpr char kDeadSocket[] = "switchyard-0123456789abcdef0123456789abcdef";

}  // namespace switchyard::testing
