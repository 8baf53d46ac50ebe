// The environment must not change what a transport does. It is read once a process, so each case
// runs this program again with variables that, obeyed, would break the link.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"

namespace switchyard {
namespace {

using testing::HeaderFor;
using testing::LinkPair;
using testing::RandomPayload;
using testing::SendFrame;
using testing::TransportCase;
using testing::TransportPair;

// A frame of several pieces travels as asked.
void ExpectWorks(const TransportCase& c) {
  TransportPair pair(c);
  LinkPair links = pair.Join({2, 64, 1U << 20U});
  ASSERT_NE(links.a, nullptr);
  EXPECT_EQ(links.a->path(), c.path);
  SeededRng rng(9);
  const std::vector<std::byte> payload = RandomPayload(rng, 1'000'000);
  SY_ASSERT_OK(SendFrame(
      *links.a, HeaderFor(links.b->offer(), FrameKind::kRequest, 1, payload.size()), payload));
  ASSERT_TRUE(pair.PumpUntil([&] { return pair.sink_b.frames.size() == 1; }));
  EXPECT_TRUE(pair.sink_b.frames[0].payload == payload);
  std::uint64_t drops = 0;
  for (const std::uint64_t count : pair.b->stats().drops) drops += count;
  EXPECT_EQ(drops, 0U);
}

TEST(UcxEnvironmentTest, InnerWorksInThisEnvironment) {
  ExpectWorks(testing::kUcxShmCase);
  ExpectWorks(testing::kUcxTcpCase);
}

// Runs the test above in a process of its own, with `variables` set.
int RunInner(const std::string& variables) {
  std::array<char, 4096> self{};
  const ssize_t size = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (size <= 0) return -1;
  const std::string command = "env " + variables + " " + self.data() +
                              " --gtest_filter=UcxEnvironmentTest.InnerWorksInThisEnvironment"
                              " >/dev/null 2>&1";
  return std::system(command.c_str());
}

TEST(UcxEnvironmentTest, VariablesDoNotChangeWhatATransportDoes) {
  const std::array<const char*, 9> table = {
      "UCX_TLS=self",
      "UCX_TLS=posix,cma",
      "UCX_ALLOC_PRIO=heap",
      "UCX_RNDV_THRESH=0",
      "UCX_NET_DEVICES=nonesuch0",
      "UCX_SHM_DEVICES=nonesuch",
      "UCX_TCP_RX_SEG_SIZE=4K UCX_TCP_TX_SEG_SIZE=2K",
      "UCX_MAX_EAGER_RAILS=4 UCX_ZCOPY_THRESH=0",
      "UCX_PROTO_ENABLE=y",
  };
  for (const char* variables : table) EXPECT_EQ(RunInner(variables), 0) << variables;
}

}  // namespace
}  // namespace switchyard
