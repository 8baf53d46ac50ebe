#include "services/bin/service_manager.h"

#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "harness/child_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Duration kLong = std::chrono::seconds(30);

// What systemd has: a socket that takes datagrams.
class Manager {
 public:
  explicit Manager(const std::string& name) {
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    const timeval limit{.tv_sec = 30, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~Manager() { ::close(socket_); }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // The next datagram; empty if none comes.
  std::string Next() {
    std::string text(512, '\0');
    const ssize_t size = ::recv(socket_, text.data(), text.size(), 0);
    text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return text;
  }

 private:
  int socket_ = -1;
};

class ServiceManagerTest : public ::testing::Test {
 protected:
  testing::TempDir dir_;
  Logger logger_{"test", LogLevel::kOff, LogFormat::kText};
};

TEST_F(ServiceManagerTest, SendsToAPathAndToANameWithoutAFile) {
  for (const std::string& name : {dir_.Join("notify"), absl::StrCat("@sy-notify-", ::getpid())}) {
    Manager manager(name);

    SY_EXPECT_OK(ServiceManager(name, &logger_).Send("READY=1\nSTATUS=serves"));

    EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=serves");
  }
}

TEST_F(ServiceManagerTest, SendsNothingWithoutASocket) {
  SY_EXPECT_OK(ServiceManager("", &logger_).Send("READY=1"));
}

TEST_F(ServiceManagerTest, SaysWhichSocketTakesNothing) {
  const std::string nobody = dir_.Join("nobody");

  const absl::Status sent = ServiceManager(nobody, &logger_).Send("READY=1");

  EXPECT_EQ(sent.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(sent.message(), HasSubstr(nobody));
  for (const std::string& name : {std::string("relative"), "/" + std::string(200, 'x')}) {
    const absl::Status bad = ServiceManager(name, &logger_).Send("READY=1");
    EXPECT_EQ(ReasonOf(bad), Reason::kBadConfig) << name;
    EXPECT_THAT(bad.message(), HasSubstr(name));
  }
}

// As a unit of Type=notify sees both programs: ready once they answer, and the end before they end.
TEST_F(ServiceManagerTest, ProgramsSayWhenTheyServeAndWhenTheyEnd) {
  const std::string name = dir_.Join("notify");
  Manager manager(name);
  const std::string bin = SY_BIN_DIR;
  const std::string variable = absl::StrCat(kNotifySocket, "=", name);
  const auto start = [&](const std::vector<std::string>& words, const std::string& log) {
    std::vector<std::string> all{"/usr/bin/env", variable};
    all.insert(all.end(), words.begin(), words.end());
    return ChildProcess::Spawn(all, dir_.Join(log));
  };
  SY_ASSERT_OK_AND_ASSIGN(auto coordinator, start({bin + "/switchyard-coordinator", "--listen",
                                                   "127.0.0.1:0", "--store", "memory"},
                                                  "coordinator"));
  SY_ASSERT_OK_AND_ASSIGN(const std::string at, coordinator.WaitForLine("ready ", kLong));
  EXPECT_EQ(manager.Next(), absl::StrCat("READY=1\nSTATUS=serves at ", at));
  SY_ASSERT_OK_AND_ASSIGN(
      auto worker,
      start({bin + "/switchyard-worker", "--coordinator", at, "--id", "w0"}, "worker"));
  EXPECT_THAT(manager.Next(), StartsWith("READY=1\n"));

  worker.Signal(SIGTERM);
  EXPECT_EQ(manager.Next(), "STOPPING=1");
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(manager.Next(), "STOPPING=1");
}

}  // namespace
}  // namespace switchyard
