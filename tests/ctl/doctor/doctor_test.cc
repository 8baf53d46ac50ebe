// The verb against real processes: a healthy deployment with certificates has no failure, each
// planted fault flips its own check and no other, and its remedy brings that back.
#include "ctl/doctor/doctor.h"

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include <linux/capability.h>

#include "ctl/doctor/node_probe.h"
#include "ctl/json.h"
#include "ctl/syctl.h"
#include "harness/local_deployment.h"
#include "tests/ctl/doctor/sockets.h"
#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/program.h"
#include "tests/testing/silent_port.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"
#include "worker/transport/local_socket.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ProgramResult;
using switchyard::testing::RunProgram;
using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::SilentPort;
using switchyard::testing::TempDir;
using switchyard::testing::TestAuthority;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr Terminal kPipe{false, 0};
constexpr char kIdentities[] =
    "identities:\n"
    "- {id: spiffe://d/coordinator, roles: [coordinator]}\n"
    "- {id: spiffe://d/worker, roles: [worker]}\n"
    "- {id: spiffe://d/admin, roles: [operator]}\n";

using States = std::map<std::string, std::string>;

States StatesOf(const Json& document) {
  States states;
  for (const Json& each : document["checks"]) states[each["check"]] = each["state"];
  return states;
}

// Those that warn or fail.
std::vector<std::string> Flipped(const States& states) {
  std::vector<std::string> names;
  for (const auto& [name, state] : states) {
    if (state == "WARN" || state == "FAIL") names.push_back(absl::StrCat(name, " ", state));
  }
  return names;
}

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* who : {"coordinator", "worker", "admin"}) Issue(who, {});
    std::filesystem::copy(SY_SHIPPED_MODEL, dir_.Join("model"));
    std::filesystem::create_directory(dir_.Join("rings"));
    LocalDeploymentOptions options;
    options.bin_dir = SY_BIN_DIR;
    options.checkpoint = SY_SHIPPED_MODEL;
    options.workers = 2;
    options.min_workers = 1;
    options.coordinator_flags = {"--tls-dir", dir_.Join("coordinator")};
    options.worker_flags = {"--net-devices", "lo", "--tls-dir", dir_.Join("worker")};
    SY_ASSERT_OK_AND_ASSIGN(deployment_, LocalDeployment::Start(options));
    target_ = deployment_->coordinator();
    SY_ASSERT_OK_AND_ASSIGN(listener_, LocalListener::Open(dir_.Join("rings"), {.high = 1}));
    for (const char* worker : {"w0", "w1"}) {
      const ProgramResult live =
          RunProgram({absl::StrCat(SY_BIN_DIR, "/syctl"), "wait", "worker", worker, "--for", "live",
                      "--target", target_, "--tls-dir", dir_.Join("admin")});
      ASSERT_EQ(live.code, 0) << live.err;
    }
  }
  void Issue(const std::string& who, const testing::LeafWish& wish) {
    testing::LeafWish all = wish;
    if (all.uris.empty()) all.uris = {absl::StrCat("spiffe://d/", who)};
    std::filesystem::create_directories(dir_.Join(who));
    authority_.WriteFolder(dir_.Join(who), all, kIdentities);
  }
  // The words of a checkup with everything that this Pod has.
  [[nodiscard]] std::vector<std::string> Words(const std::vector<std::string>& more) const {
    std::vector<std::string> words{absl::StrCat(SY_BIN_DIR, "/syctl"),
                                   "doctor",
                                   "-o",
                                   "json",
                                   "--target",
                                   target_,
                                   "--tls-dir",
                                   dir_.Join("admin"),
                                   "--checkpoint",
                                   dir_.Join("model"),
                                   "--ring-dir",
                                   dir_.Join("rings")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  States Examine(const std::vector<std::string>& more = {}) {
    last_ = RunProgram(Words(more));
    const Json document = Json::parse(last_.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(document.is_object()) << last_.out << last_.err;
    if (!document.is_object()) return {};
    EXPECT_EQ(last_.code, document["failed"] == 0 ? 0 : 1) << last_.out;
    return StatesOf(document);
  }

  const TempDir dir_;
  TestAuthority authority_{"ours"};
  std::unique_ptr<LocalDeployment> deployment_;
  LocalListener listener_;
  std::string target_;
  ProgramResult last_;
};

TEST_F(DoctorTest, HealthyServiceHasNoFaultAndEachFaultFlipsItsOwnCheck) {
  const States healthy = Examine();
  ASSERT_THAT(Flipped(healthy), IsEmpty()) << last_.out;
  EXPECT_THAT(healthy, Not(Contains(Pair(::testing::_, "SKIP")))) << last_.out;
  const auto healed = [&] {
    EXPECT_EQ(Examine(), healthy) << last_.out;
    EXPECT_EQ(last_.code, 0);
  };

  // Small /dev/shm: by a need that is larger than any.
  EXPECT_THAT(Flipped(Examine({"--shm-bytes", "4096TiB"})),
              UnorderedElementsAre("shared-memory FAIL"));
  EXPECT_THAT(Flipped(Examine({"--shm-bytes", "4KiB"})), IsEmpty());

  // A name that does not resolve.
  const std::string target = target_;
  target_ = "coordinator.invalid:7700";
  EXPECT_THAT(Flipped(Examine()), UnorderedElementsAre("dns FAIL"));
  // A coordinator that cannot be reached.
  target_ = "127.0.0.1:1";
  EXPECT_THAT(Flipped(Examine()), UnorderedElementsAre("coordinator FAIL"));
  EXPECT_THAT(last_.out, HasSubstr("check that switchyard-coordinator runs there"));
  target_ = target;
  healed();

  // A missing file of the model, and one that is short.
  const std::string weights = dir_.Join("model/model.safetensors");
  std::filesystem::rename(weights, dir_.Join("away"));
  EXPECT_THAT(Flipped(Examine()), UnorderedElementsAre("checkpoint FAIL"));
  std::filesystem::copy(dir_.Join("away"), weights);
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  EXPECT_THAT(Flipped(Examine()), UnorderedElementsAre("checkpoint FAIL"));
  std::filesystem::rename(dir_.Join("away"), weights);
  healed();

  // A socket of a process that is gone.
  testing::LeaveDeadSocket(dir_.Join(absl::StrCat("rings/", testing::kDeadSocket)));
  EXPECT_THAT(Flipped(Examine()), UnorderedElementsAre("ring-sockets WARN"));
  EXPECT_THAT(last_.out, HasSubstr("the next process that listens"));
  SY_ASSERT_OK(LocalListener::Open(dir_.Join("rings"), {.high = 2}).status());
  healed();
}

TEST_F(DoctorTest, CertificatesOfEveryWrongKindFlipTheirCheck) {
  const std::vector<testing::LeafWish> wrong{
      {.uris = {}, .valid_from_s = -7200, .valid_until_s = -3600},
      {.uris = {}, .valid_from_s = 3600, .valid_until_s = 7200},
      {.uris = {"spiffe://d/stranger"}}};
  for (const testing::LeafWish& wish : wrong) {
    Issue("admin", wish);
    const States states = Examine();
    EXPECT_THAT(Flipped(states), UnorderedElementsAre("certificate FAIL")) << last_.out;
    EXPECT_EQ(states.at("coordinator"), "SKIP");
    Issue("admin", {});
    EXPECT_THAT(Flipped(Examine()), IsEmpty()) << last_.out;
  }
  // It works for a while yet.
  Issue("admin", {.uris = {}, .valid_from_s = -36000, .valid_until_s = 3600});
  EXPECT_THAT(Flipped(Examine()), UnorderedElementsAre("certificate WARN"));
  // Keys stay where they are.
  EXPECT_THAT(last_.out, Not(HasSubstr("PRIVATE")));
  // A worker may not list workers: no fault of the service.
  last_ = RunProgram({absl::StrCat(SY_BIN_DIR, "/syctl"), "doctor", "-o", "json", "--target",
                      target_, "--tls-dir", dir_.Join("worker")});
  EXPECT_EQ(last_.code, 0) << last_.out;
  EXPECT_EQ(StatesOf(Json::parse(last_.out)).at("workers"), "SKIP");
}

TEST_F(DoctorTest, AWorkerThatEndsWithoutAWordIsSeen) {
  deployment_->worker_process(1).Signal(SIGSTOP);
  const States states = Examine();
  EXPECT_EQ(states.at("worker-ports"), "FAIL") << last_.out;
  EXPECT_THAT(last_.out, HasSubstr("w1 at 127.0.0.1:"));
  deployment_->worker_process(1).Signal(SIGCONT);
}

// The limit is lowered in the child; a thread that gives the capability up has children without it.
TEST(DoctorMemlockTest, ALowLimitFlipsItWithRdmaOnly) {
  const auto examine = [](const std::string& words) {
    ProgramResult result;
    std::thread without([&] {
      ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
      result = RunProgram({"/bin/sh", "-c",
                           absl::StrCat("ulimit -l 64; exec ", SY_BIN_DIR,
                                        "/syctl doctor --scope node -o json ", words)});
    });
    without.join();
    return result;
  };
  const ProgramResult plain = examine("");
  EXPECT_EQ(plain.code, 0) << plain.out << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("64KiB may be locked"));
  const ProgramResult rdma = examine("--rdma");
  EXPECT_EQ(rdma.code, 1) << rdma.err;
  EXPECT_THAT(Flipped(StatesOf(Json::parse(rdma.out))), UnorderedElementsAre("memlock FAIL"));
  EXPECT_THAT(rdma.out, HasSubstr("LimitMEMLOCK=infinity"));
  // The remedies: no limit, where this user may lift it, or the capability.
  constexpr std::uint64_t kIpcLock = std::uint64_t{1} << CAP_IPC_LOCK;
  if ((ProbeMemlock().capabilities & kIpcLock) == 0) GTEST_SKIP() << "this user has no capability";
  const ProgramResult healed = RunProgram(
      {"/bin/sh", "-c",
       absl::StrCat("ulimit -l 64; exec ", SY_BIN_DIR, "/syctl doctor --scope node --rdma")});
  EXPECT_EQ(healed.code, 0) << healed.out;
  EXPECT_EQ(StatesOf(Json::parse(healed.out)).at("memlock"), "OK");
}

// A release that there is not: by a coordinator that says it is one.
TEST(DoctorVersionTest, AnotherReleaseIsSeen) {
  ScriptedCoordinator coordinator;
  coordinator.workers.clear_workers();
  const SyctlResult result = RunSyctl({"doctor", "--target", coordinator.endpoint()}, kPipe);
  EXPECT_EQ(StatesOf(Json::parse(result.out)).at("versions"), "FAIL") << result.out;
  EXPECT_THAT(result.out, HasSubstr("release 9.8.7 and protocol 6"));
}

TEST(DoctorScopeTest, NodeNeedsNoNetworkAndPrintsEveryForm) {
  const std::vector<std::string> words{"doctor", "--scope", "node", "--target",
                                       "nowhere.invalid:1"};
  const auto with = [&](const std::string& form) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"-o", form});
    return RunSyctl(all, kPipe);
  };
  EXPECT_EQ(with("json").exit_code, 0) << with("json").out;
  EXPECT_THAT(StatesOf(Json::parse(with("json").out)), Not(Contains(Pair("dns", ::testing::_))));
  EXPECT_THAT(with("table").out, HasSubstr("CHECK          STATE  FOUND\nshared-memory  "));
  EXPECT_THAT(with("yaml").out, HasSubstr("checks:\n  - check: shared-memory\n"));
  EXPECT_THAT(with("jsonl").out, HasSubstr("{\"check\":\"memlock\","));
  EXPECT_EQ(with("jsonpath={.failed}").out, "0\n");
}

// Nothing is there, and the port says nothing: it ends all the same.
TEST(DoctorBoundsTest, EndsWithoutAnything) {
  SilentPort port;
  port.Listen();
  const auto before = std::chrono::steady_clock::now();
  const SyctlResult result =
      RunSyctl({"doctor", "--target", port.endpoint(), "--timeout", "1", "--checkpoint",
                "/nonexistent/model", "--ring-dir", "/nonexistent/rings"},
               kPipe);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(Flipped(StatesOf(Json::parse(result.out))),
              UnorderedElementsAre("ring-sockets FAIL", "checkpoint FAIL", "coordinator FAIL"))
      << result.out;
  const SyctlResult bare =
      RunSyctl({"doctor", "--tls-dir", "/nonexistent/tls", "-o", "json"}, kPipe);
  EXPECT_EQ(bare.exit_code, 1);
  EXPECT_THAT(Flipped(StatesOf(Json::parse(bare.out))), UnorderedElementsAre("certificate FAIL"));
}

}  // namespace
}  // namespace switchyard::ctl
