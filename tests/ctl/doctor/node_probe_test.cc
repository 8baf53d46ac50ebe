#include "ctl/doctor/node_probe.h"

#include <filesystem>
#include <string>
#include <sys/resource.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ctl/doctor/node_checks.h"
#include "tests/ctl/doctor/sockets.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"
#include "worker/transport/local_socket.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::IsOk;
using switchyard::testing::TempDir;
using switchyard::testing::TestAuthority;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kId[] = "spiffe://d/w";
constexpr char kIdentities[] = "identities:\n- {id: spiffe://d/w, roles: [worker]}\n";

TEST(NodeProbeTest, ReadsSizesOfAFileSystem) {
  const TempDir dir;
  const SharedMemoryFacts facts = ProbeSharedMemory(dir.path());
  EXPECT_THAT(facts.wrong, IsEmpty());
  EXPECT_GT(facts.bytes, 0);
  EXPECT_LE(facts.free, facts.bytes);
  EXPECT_THAT(facts.memfd_problem, IsEmpty());
  EXPECT_EQ(ProbeSharedMemory(dir.Join("gone")).wrong, "No such file or directory");
}

TEST(NodeProbeTest, ReadsLimitsAndCapabilities) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  const MemlockFacts facts = ProbeMemlock();
  EXPECT_EQ(facts.soft.has_value(), limit.rlim_cur != RLIM_INFINITY);
  EXPECT_EQ(static_cast<rlim_t>(facts.soft.value_or(-1)), limit.rlim_cur);
}

// The transport's own sockets, so that its names and these are the same.
TEST(NodeProbeTest, TellsLiveSocketsFromDeadOnes) {
  const TempDir dir;
  const SocketName name{.high = 1, .low = 2};
  SY_ASSERT_OK_AND_ASSIGN(const LocalListener listener, LocalListener::Open(dir.path(), name));
  testing::LeaveDeadSocket(dir.Join(testing::kDeadSocket));
  testing::LeaveDeadSocket(dir.Join("other"));
  dir.Write("switchyard-00000000000000000000000000000001", "a file");

  const RingDirFacts facts = ProbeRingDir(dir.path());

  EXPECT_THAT(facts.wrong, IsEmpty());
  EXPECT_EQ(facts.live, 1U);
  EXPECT_THAT(facts.stale, ElementsAre(testing::kDeadSocket));
  EXPECT_TRUE(std::filesystem::exists(dir.Join(testing::kDeadSocket)));
  EXPECT_THAT(ProbeRingDir(dir.Join("gone")).wrong, HasSubstr("no such folder"));
  // The remedy: the next process that listens.
  const SocketName next{.high = 3, .low = 4};
  SY_ASSERT_OK(LocalListener::Open(dir.path(), next).status());
  EXPECT_THAT(ProbeRingDir(dir.path()).stale, IsEmpty());
}

TEST(NodeProbeTest, ReadsHeadersOfACheckpoint) {
  const TempDir dir;
  const std::string model = dir.Join("model");
  std::filesystem::copy(SY_SHIPPED_MODEL, model);
  const CheckpointFacts whole = ProbeCheckpoint(model);
  EXPECT_THAT(whole.status, IsOk());
  EXPECT_GT(whole.tensors, 10U);
  EXPECT_GT(whole.bytes, 1 << 20);
  const std::string weights = model + "/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
  EXPECT_THAT(std::string(ProbeCheckpoint(model).status.message()), HasSubstr("model.safetensors"));
  EXPECT_THAT(ProbeCheckpoint(dir.Join("gone")).status, Not(IsOk()));
}

TEST(NodeProbeTest, ReadsACertificateOfAnyState) {
  const TempDir dir;
  TestAuthority authority("ours");
  authority.WriteFolder(dir.path(), {.uris = {kId}}, kIdentities);
  EXPECT_EQ(CheckCertificate(ProbeCertificate(dir.path())).verdict, Verdict::kOk);
  authority.WriteFolder(dir.path(), {.uris = {kId}, .valid_from_s = -9, .valid_until_s = -1},
                        kIdentities);
  EXPECT_THAT(CheckCertificate(ProbeCertificate(dir.path())).found, HasSubstr("expired"));
  authority.WriteFolder(dir.path(), {.uris = {kId}, .valid_from_s = 60}, kIdentities);
  EXPECT_THAT(CheckCertificate(ProbeCertificate(dir.path())).found, HasSubstr("not valid before"));
  authority.WriteFolder(dir.path(), {.uris = {"spiffe://d/stranger"}}, kIdentities);
  EXPECT_THAT(CheckCertificate(ProbeCertificate(dir.path())).found, HasSubstr("identities.yaml"));
  authority.WriteFolder(dir.path(), {.uris = {kId}}, kIdentities);
  testing::ReplaceFile(dir.Join("ca.crt"), TestAuthority("other").certificate());
  EXPECT_THAT(CheckCertificate(ProbeCertificate(dir.path())).found,
              HasSubstr("no authority in " + dir.Join("ca.crt")));
  testing::ReplaceFile(dir.Join("identities.yaml"), "identities: [");
  EXPECT_THAT(CheckCertificate(ProbeCertificate(dir.path())).found, HasSubstr("identities.yaml"));
  std::filesystem::remove(dir.Join("tls.key"));
  EXPECT_THAT(CheckCertificate(ProbeCertificate(dir.path())).found, HasSubstr("tls.key"));
}

// No time is left: what would be read from files says so, and nothing hangs.
TEST(NodeProbeTest, ReadsNothingWhenTimeIsOver) {
  const TempDir dir;
  const NodeFacts facts = ProbeNode(
      {.ring_dirs = {dir.path()}, .checkpoints = {SY_SHIPPED_MODEL}, .tls_dir = dir.path()},
      Budget(Duration::zero()));
  EXPECT_THAT(facts.shared_memory.wrong, HasSubstr("in time"));
  ASSERT_EQ(facts.ring_dirs.size(), 1U);
  EXPECT_THAT(facts.ring_dirs[0].wrong, HasSubstr("in time"));
  ASSERT_EQ(facts.checkpoints.size(), 1U);
  EXPECT_TRUE(absl::IsDeadlineExceeded(facts.checkpoints[0].status));
  EXPECT_TRUE(absl::IsDeadlineExceeded(facts.certificate.status));
}

}  // namespace
}  // namespace switchyard::ctl
