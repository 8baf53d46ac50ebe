#include "worker/transport/local_socket.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::TempDir;

constexpr Duration kPatience = std::chrono::seconds(20);
const auto kUnreachable = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport);
const auto kRefused = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);

SocketName RandomName() { return SystemRng().NextId<SocketName>(); }

std::set<std::string> FilesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename());
  }
  return names;
}

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.exists() || entry.is_symlink() ? 1 : 0;
  }
  return count;
}

// A file as a process leaves it that was killed: bound, and nothing listens any more.
void LeaveDeadFile(const std::string& path, mode_t mode) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

struct Connected {
  Descriptor visitor;
  Descriptor server;
};
Connected Join(const LocalListener& listener, const std::string& directory,
               const SocketName& name) {
  auto visitor = ConnectLocal(directory, name, kPatience);
  SY_EXPECT_OK(visitor);
  if (!visitor.ok()) return {};
  Descriptor server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  EXPECT_TRUE(server.valid());
  return {*std::move(visitor), std::move(server)};
}

class LocalSocketTest : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] std::string directory() const { return GetParam() ? dir_.path() : std::string(); }
  LocalListener Listen() {
    auto listener = LocalListener::Open(directory(), name_);
    SY_EXPECT_OK(listener);
    return listener.ok() ? *std::move(listener) : LocalListener();
  }

  const TempDir dir_;
  const SocketName name_ = RandomName();
};

TEST_P(LocalSocketTest, PassesTwoDescriptorsWithTheirMessage) {
  const LocalListener listener = Listen();
  const Connected ends = Join(listener, directory(), name_);
  const std::string path = dir_.Write("file", "abc");
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::array<std::byte, 2> sent = {std::byte{7}, std::byte{9}};

  ASSERT_TRUE(SendMessage(ends.visitor.get(), sent, std::array{file.get(), listener.get()}));

  std::array<std::byte, 4> bytes{};
  const auto message = ReceiveMessage(ends.server.get(), bytes, true);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->bytes, 2U);
  EXPECT_EQ(bytes[1], std::byte{9});
  EXPECT_TRUE(message->whole);
  char text[3];
  EXPECT_EQ(::pread(message->descriptors[0].get(), text, 3, 0), 3);
  EXPECT_EQ(::fcntl(message->descriptors[0].get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(message->descriptors[1].get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(ReceiveMessage(ends.server.get(), bytes, true).has_value());
  EXPECT_EQ(errno, EAGAIN) << "does not wait";
  EXPECT_EQ(UserAt(ends.visitor.get()), ::geteuid());
  EXPECT_EQ(UserAt(ends.server.get()), ::geteuid());
}

// Whatever comes, no descriptor stays open that the caller does not have.
TEST_P(LocalSocketTest, ClosesDescriptorsThatWereNotAskedFor) {
  const LocalListener listener = Listen();
  const Connected ends = Join(listener, directory(), name_);
  const std::array<std::byte, 1> byte{};
  const std::size_t before = OpenDescriptors();
  for (const std::size_t count : {1U, 2U, 3U, 100U}) {
    for (const bool wanted : {false, true}) {
      const std::vector<int> many(count, listener.get());
      std::vector<std::byte> control(CMSG_SPACE(count * sizeof(int)));
      iovec part{.iov_base = const_cast<std::byte*>(byte.data()), .iov_len = 1};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(count * sizeof(int));
      std::memcpy(CMSG_DATA(rights), many.data(), count * sizeof(int));
      ASSERT_EQ(::sendmsg(ends.visitor.get(), &message, MSG_NOSIGNAL), 1);

      std::array<std::byte, 1> bytes{};
      const auto taken = ReceiveMessage(ends.server.get(), bytes, wanted);

      ASSERT_TRUE(taken.has_value());
      const bool both = wanted && count == 2;
      EXPECT_EQ(taken->descriptors[0].valid(), both) << count;
      EXPECT_EQ(taken->descriptors[1].valid(), both) << count;
      EXPECT_EQ(taken->whole, wanted && count <= 2) << count;
      EXPECT_EQ(OpenDescriptors(), before + (both ? 2 : 0)) << count;
    }
  }
}

TEST_P(LocalSocketTest, SaysThatAMessageWasCut) {
  const LocalListener listener = Listen();
  const Connected ends = Join(listener, directory(), name_);
  const std::array<std::byte, 5> sent{};
  ASSERT_TRUE(SendMessage(ends.visitor.get(), sent));
  std::array<std::byte, 4> bytes{};

  const auto message = ReceiveMessage(ends.server.get(), bytes, true);

  ASSERT_TRUE(message.has_value());
  EXPECT_FALSE(message->whole);
}

TEST_P(LocalSocketTest, SendingToOneThatIsGoneFailsWithoutASignal) {
  const LocalListener listener = Listen();
  Connected ends = Join(listener, directory(), name_);
  ends.server.reset();
  const std::array<std::byte, 1> byte{};

  EXPECT_FALSE(SendMessage(ends.visitor.get(), byte)) << "SIGPIPE would end this test";
  std::array<std::byte, 1> bytes{};
  EXPECT_FALSE(ReceiveMessage(ends.visitor.get(), bytes, false).has_value());
  EXPECT_EQ(errno, 0);
}

TEST_P(LocalSocketTest, WaitsForAPlaceInAFullQueueAsLongAsItMay) {
  const LocalListener listener = Listen();
  std::vector<Descriptor> waiting;
  absl::Status full;
  while (waiting.size() < 1'000) {
    auto connected = ConnectLocal(directory(), name_, std::chrono::milliseconds(20));
    if (!connected.ok()) {
      full = connected.status();
      break;
    }
    waiting.push_back(*std::move(connected));
  }
  EXPECT_THAT(full, kUnreachable) << "the queue has an end";

  std::jthread accepts(
      [&] { const Descriptor taken(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)); });
  SY_EXPECT_OK(ConnectLocal(directory(), name_, kPatience));
}

TEST_P(LocalSocketTest, LeavesNothingBehind) {
  {
    LocalListener listener = Listen();
    LocalListener moved = std::move(listener);
    EXPECT_EQ(FilesIn(dir_.path()).size(), GetParam() ? 1U : 0U);
    SY_EXPECT_OK(ConnectLocal(directory(), name_, kPatience));
  }

  EXPECT_TRUE(FilesIn(dir_.path()).empty());
  EXPECT_THAT(ConnectLocal(directory(), name_, kPatience), kUnreachable);
}

INSTANTIATE_TEST_SUITE_P(Places, LocalSocketTest, ::testing::Values(false, true),
                         [](const ::testing::TestParamInfo<bool>& param) {
                           return param.param ? "InADirectory" : "Abstract";
                         });

TEST(LocalSocketFilesTest, RemovesFilesOfDeadProcessesAndNothingElse) {
  const TempDir dir;
  const std::string name = "switchyard-0123456789abcdef0123456789abcde";
  dir.Write("other", "stays");
  dir.Write(name + "1", "no socket");
  LeaveDeadFile(dir.Join("other.sock"), 0600);
  LeaveDeadFile(dir.Join("switchyard-short"), 0600);
  LeaveDeadFile(dir.Join(name + "2"), 0600);
  LeaveDeadFile(dir.Join(name + "3"), 0);  // may be about to listen
  std::filesystem::create_symlink("other.sock", dir.Join(name + "4"));
  const SocketName live = RandomName();
  auto lives = LocalListener::Open(dir.path(), live);
  SY_ASSERT_OK(lives);

  EXPECT_EQ(FilesIn(dir.path()),
            (std::set<std::string>{"other", "other.sock", "switchyard-short", name + "1",
                                   name + "3", name + "4", "switchyard-" + ToHex(live)}));

  SY_EXPECT_OK(LocalListener::Open(dir.path(), RandomName()));
  SY_EXPECT_OK(ConnectLocal(dir.path(), live, kPatience)) << "who lives keeps its file";
}

TEST(LocalSocketFilesTest, TakesTheDirectorysPermissions) {
  for (const mode_t mode : {0700, 0770, 0755, 0777}) {
    const TempDir dir;
    ASSERT_EQ(::chmod(dir.path().c_str(), mode), 0);
    const SocketName name = RandomName();
    const auto listener = LocalListener::Open(dir.path(), name);
    SY_ASSERT_OK(listener);

    struct stat status {};
    ASSERT_EQ(::lstat(dir.Join("switchyard-" + ToHex(name)).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode & 0666);
  }
}

TEST(LocalSocketFilesTest, RefusesDirectoriesByName) {
  const TempDir dir;
  const std::string file = dir.Write("file", "");
  const std::string longest = dir.path() + std::string(63 - dir.path().size(), '/');
  SY_EXPECT_OK(CheckSocketDirectory(""));
  SY_EXPECT_OK(CheckSocketDirectory(dir.path()));
  SY_EXPECT_OK(CheckSocketDirectory(longest));
  SY_EXPECT_OK(LocalListener::Open(longest, RandomName()));
  for (const std::string& bad : {file, dir.Join("missing"), longest + "/", std::string(300, 'x')}) {
    const absl::Status refused = CheckSocketDirectory(bad);
    EXPECT_THAT(refused, kRefused);
    EXPECT_NE(refused.message().find(bad), absl::string_view::npos);
    EXPECT_FALSE(LocalListener::Open(bad, RandomName()).ok());
    EXPECT_FALSE(ConnectLocal(bad, RandomName(), kPatience).ok());
  }
}

}  // namespace
}  // namespace switchyard
