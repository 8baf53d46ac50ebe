#include "ctl/doctor/node_checks.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"

namespace switchyard::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kDay = 86400;
constexpr std::uint64_t kIpcLock = std::uint64_t{1} << 14;

auto Is(Verdict verdict, const std::string& found) {
  return AllOf(
      Field(&Check::verdict, verdict), Field(&Check::found, HasSubstr(found)),
      Field(&Check::next,
            verdict == Verdict::kOk ? ::testing::Matcher<std::string>(IsEmpty()) : Not(IsEmpty())));
}

SharedMemoryFacts Memory() {
  SharedMemoryFacts facts;
  facts.path = "/dev/shm";
  facts.bytes = 64 * kMiB;
  facts.free = 60 * kMiB;
  return facts;
}

TEST(SharedMemoryCheckTest, NeedsWhatIsStatedAndNoMore) {
  EXPECT_THAT(CheckSharedMemory(Memory(), {}), Is(Verdict::kOk, "of 64MiB, 60MiB free"));
  EXPECT_THAT(CheckSharedMemory(Memory(), {.shm_bytes = 60 * kMiB}), Is(Verdict::kOk, "60MiB"));
  EXPECT_THAT(CheckSharedMemory(Memory(), {.shm_bytes = 62 * kMiB}),
              AllOf(Is(Verdict::kFail, "62MiB are needed"),
                    Field(&Check::next, HasSubstr("remove files"))));
  EXPECT_THAT(CheckSharedMemory(Memory(), {.shm_bytes = 65 * kMiB}),
              AllOf(Is(Verdict::kFail, "65MiB are needed"),
                    Field(&Check::next, HasSubstr("shm.sizeLimit"))));
  SharedMemoryFacts endless = Memory();
  endless.bytes = endless.free = 0;
  EXPECT_THAT(CheckSharedMemory(endless, {.shm_bytes = kMiB}), Is(Verdict::kOk, "without a limit"));
}

TEST(SharedMemoryCheckTest, MayBeMissingWhereNothingNeedsIt) {
  SharedMemoryFacts facts = Memory();
  facts.wrong = "No such file or directory";
  EXPECT_THAT(CheckSharedMemory(facts, {}), Is(Verdict::kSkip, "No such file"));
  EXPECT_THAT(CheckSharedMemory(facts, {.shm_bytes = 1}), Is(Verdict::kFail, "No such file"));
}

TEST(SharedMemoryCheckTest, WarnsWhereAKernelGivesNoSealedMemory) {
  SharedMemoryFacts facts = Memory();
  facts.memfd_problem = "memfd_create: Operation not permitted";
  EXPECT_THAT(CheckSharedMemory(facts, {}), Is(Verdict::kWarn, "Operation not permitted"));
}

TEST(MemlockCheckTest, FailsOnlyWhereRdmaIsAskedFor) {
  MemlockFacts facts;
  facts.soft = 64 * 1024;
  facts.hard = 8 * kMiB;
  EXPECT_THAT(CheckMemlock(facts, {}), Is(Verdict::kOk, "64KiB may be locked, at most 8MiB"));
  EXPECT_THAT(CheckMemlock(facts, {.rdma = true}), Is(Verdict::kFail, "64KiB may be locked"));
  facts.soft = facts.hard = 4096 * kMiB;
  EXPECT_THAT(CheckMemlock(facts, {.rdma = true}), Is(Verdict::kWarn, "4GiB may be locked"));
  facts.soft = facts.hard = std::nullopt;
  EXPECT_THAT(CheckMemlock(facts, {.rdma = true}), Is(Verdict::kOk, "unlimited may be locked"));
}

TEST(MemlockCheckTest, ACapabilityLiftsTheLimit) {
  MemlockFacts facts;
  facts.soft = facts.hard = 0;
  facts.capabilities = kIpcLock;
  EXPECT_THAT(CheckMemlock(facts, {.rdma = true}),
              Is(Verdict::kOk, "CapEff 0000000000004000 (IPC_LOCK)"));
}

TEST(RingDirCheckTest, TellsSocketsOfTheDead) {
  RingDirFacts facts;
  facts.dir = "/rings";
  facts.live = 2;
  EXPECT_THAT(CheckRingDir(facts), Is(Verdict::kOk, "2 processes listen in /rings"));
  facts.stale = {"a", "b", "c", "d", "e"};
  EXPECT_THAT(CheckRingDir(facts), Is(Verdict::kWarn,
                                      "5 sockets of processes that are gone: a, b, "
                                      "c, d, ...; 2 processes"));
  facts.stale = {"a"};
  facts.live = 1;
  EXPECT_THAT(
      CheckRingDir(facts),
      Is(Verdict::kWarn, "1 socket of processes that are gone: a; 1 process listens in /rings"));
  facts.wrong = "there is no such folder";
  EXPECT_THAT(CheckRingDir(facts), Is(Verdict::kFail, "/rings: there is no such folder"));
}

TEST(CheckpointCheckTest, NamesWhatIsWrong) {
  CheckpointFacts facts;
  facts.dir = "/models/m";
  facts.tensors = 12;
  facts.bytes = 5 * kMiB;
  EXPECT_THAT(CheckCheckpoint(facts), Is(Verdict::kOk, "/models/m is complete: 12 tensors, 5MiB"));
  facts.warnings = {"total_size is 3."};
  EXPECT_THAT(CheckCheckpoint(facts), Is(Verdict::kWarn, "total_size is 3."));
  facts.status = absl::NotFoundError("model-2.safetensors: open");
  EXPECT_EQ(CheckCheckpoint(facts).found, "/models/m: model-2.safetensors: open");
  facts.status = absl::NotFoundError("/models/m: no weights");
  EXPECT_EQ(CheckCheckpoint(facts).found, "/models/m: no weights");
  facts.status = absl::DeadlineExceededError("silent");
  EXPECT_THAT(CheckCheckpoint(facts),
              AllOf(Is(Verdict::kFail, "silent"), Field(&Check::next, HasSubstr("file system"))));
}

OwnCertificateFacts Certificate() {
  OwnCertificateFacts facts;
  facts.dir = "certs/w";
  facts.facts = {.id = "spiffe://d/w", .not_before_s = 100 * kDay, .not_after_s = 200 * kDay};
  facts.known = true;
  facts.now_s = 120 * kDay;
  return facts;
}

TEST(CertificateCheckTest, LooksAtTimesIssuerAndId) {
  OwnCertificateFacts facts = Certificate();
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kOk,
                                          "certs/w: spiffe://d/w is valid until "
                                          "1970-07-20T00:00:00Z, for 80 days"));
  facts.now_s = 175 * kDay;
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kOk, "for 25 days"));
  facts.now_s = 175 * kDay + 1;
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kWarn, "for 24 days"));
  facts.now_s = 200 * kDay;
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kFail, "expired at 1970-07-20T00:00:00Z"));
  facts.now_s = 99 * kDay;
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kFail, "is not valid before 1970-04-11"));
  facts = Certificate();
  facts.issuer = absl::InvalidArgumentError("no authority has issued it");
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kFail, "no authority has issued it"));
  facts = Certificate();
  facts.known = false;
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kFail, "is not in identities.yaml"));
  facts.status = absl::NotFoundError("cannot read certs/w/tls.key");
  EXPECT_THAT(CheckCertificate(facts), Is(Verdict::kFail, "cannot read certs/w/tls.key"));
  EXPECT_THAT(CheckCertificate({}), Is(Verdict::kSkip, "nothing is encrypted"));
}

TEST(NodeChecksTest, HasALineForEachFolder) {
  const auto names = [](const std::vector<Check>& checks) {
    std::vector<std::string> all;
    for (const Check& each : checks) all.push_back(each.name);
    return all;
  };
  NodeFacts facts;
  EXPECT_THAT(names(NodeChecks(facts, {})),
              ElementsAre("shared-memory", "memlock", "ring-sockets", "checkpoint", "certificate"));
  facts.checkpoints.resize(2);
  facts.ring_dirs.resize(2);
  EXPECT_THAT(names(NodeChecks(facts, {})),
              ElementsAre("shared-memory", "memlock", "ring-sockets", "ring-sockets", "checkpoint",
                          "checkpoint", "certificate"));
}

}  // namespace
}  // namespace switchyard::ctl
