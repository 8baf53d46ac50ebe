// A deployment whose processes know each other by certificates: the same results as without them,
// nothing for strangers, and new certificates without an error.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/config/security_files.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::Processes;
using testing::RunProgram;
using testing::RunStep;
using testing::StepLoad;
using testing::TempDir;
using testing::TestAuthority;

constexpr std::int32_t kLayer = 1;
constexpr char kIdentities[] =
    "identities:\n"
    "- {id: spiffe://d/coordinator, roles: [coordinator]}\n"
    "- {id: spiffe://d/worker, roles: [worker]}\n"
    "- {id: spiffe://d/engine, roles: [source]}\n"
    "- {id: spiffe://d/admin, roles: [operator]}\n"
    "- {id: spiffe://d/viewer, roles: [observer]}\n";

class TlsTest : public Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    for (const char* who : {"coordinator", "worker", "engine", "admin", "viewer"}) Renew(who);
    LocalDeploymentOptions options;
    options.min_workers = 1;
    options.coordinator_flags = {"--tls-dir", FolderOf("coordinator")};
    options.worker_flags = {"--tls-dir", FolderOf("worker")};
    Deploy(2, std::move(options));
  }
  // Gives `who` a new certificate and key.
  void Renew(const std::string& who) {
    std::filesystem::create_directory(FolderOf(who));
    authority_.WriteFolder(FolderOf(who), {.uris = {absl::StrCat("spiffe://d/", who)}},
                           kIdentities);
  }
  [[nodiscard]] std::string FolderOf(const std::string& who) const { return dir_.Join(who); }

  // A client with the certificate of `who`; of nobody if it is empty.
  absl::StatusOr<std::unique_ptr<Client>> ConnectAs(const std::string& who,
                                                    const std::string& transport = GetParam()) {
    return Connect(transport, WithTlsDir(who.empty() ? "" : FolderOf(who)));
  }
  absl::Status OpenAs(const std::string& who) {
    SY_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, ConnectAs(who));
    return client->Open({}).status();
  }
  testing::ProgramResult Syctl(std::vector<std::string> words, const std::string& who) {
    words.insert(words.begin(), absl::StrCat(testing::kBinDir, "/syctl"));
    words.insert(words.end(), {"--target", deployment_->coordinator()});
    if (!who.empty()) words.insert(words.end(), {"--tls-dir", FolderOf(who)});
    return RunProgram(words);
  }

  TempDir dir_;
  TestAuthority authority_{"ours"};
};

TEST_P(TlsTest, StepsHaveTheBitsOfAPlainDeployment) {
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectAs("engine"));
  OpenSessionRequest order;
  order.mode = DispatchMode::kLowLatency;
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, testing::kReadyTimeout));
  Batch encrypted(8, 3);
  SY_ASSERT_OK(RunStep(*session, encrypted, kLayer));

  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto plain_client, Connect(GetParam()));
  SY_ASSERT_OK_AND_ASSIGN(const auto plain_session,
                          plain_client->OpenWhenReady(order, testing::kReadyTimeout));
  Batch plain(8, 3);
  SY_ASSERT_OK(RunStep(*plain_session, plain, kLayer));
  EXPECT_EQ(encrypted.y, plain.y);
}

TEST_P(TlsTest, OthersThanEnginesOpenNoSession) {
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectAs("engine"));
  SY_ASSERT_OK(client->OpenWhenReady({}, testing::kReadyTimeout).status());

  EXPECT_EQ(OpenAs("").code(), absl::StatusCode::kUnavailable);
  for (const char* who : {"viewer", "admin", "coordinator"}) {
    const absl::Status refused = OpenAs(who);
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << who << ": " << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("spiffe://d/", who)));
  }
}

// Every process gets a new certificate while steps run, and one of them a restart: gRPC sees new
// files within ten seconds, so the restarted worker meets peers with old and with new ones.
TEST_P(TlsTest, NewCertificatesFailNoStep) {
  SY_ASSERT_OK_AND_ASSIGN(const auto watcher_client, ConnectAs("engine", "auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto watcher,
                          watcher_client->OpenWhenReady({}, testing::kReadyTimeout));
  ASSERT_TRUE(WaitForWorkers(*watcher, 2));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectAs("engine"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
  Batch batch(4, 5);
  StepLoad load([&] { return RunStep(*session, batch, kLayer); });
  for (const char* who : {"coordinator", "worker", "engine"}) Renew(who);
  deployment_->worker_process(1).Signal(SIGTERM);
  SY_ASSERT_OK(deployment_->worker_process(1).Wait(std::chrono::seconds(40)).status());
  ASSERT_TRUE(WaitForWorkers(*watcher, 1));
  SY_ASSERT_OK(deployment_->RestartWorker(1));
  ASSERT_TRUE(WaitForWorkers(*watcher, 2));
  const int seen = load.steps();
  while (load.steps() < seen + 20) std::this_thread::yield();
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
}

INSTANTIATE_TEST_SUITE_P(Transports, TlsTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& transport) { return std::string(transport.param); });

class TlsSyctlTest : public TlsTest {};

TEST_P(TlsSyctlTest, OperatorsChangeAndObserversSee) {
  const auto seen = Syctl({"get", "workers", "-o", "json"}, "viewer");
  EXPECT_EQ(seen.code, 0) << seen.err;
  EXPECT_THAT(seen.out, HasSubstr("w1"));
  // Asks the workers themselves.
  const auto top = Syctl({"top", "-o", "json"}, "viewer");
  EXPECT_EQ(top.code, 0) << top.err;
  for (const char* program : {"coordinator", "w1"}) {
    const auto metrics = Syctl({"get", "metrics", program}, "viewer");
    EXPECT_THAT(metrics.out, HasSubstr("moe_certificate_not_after_timestamp_seconds")) << program;
  }

  const auto refused = Syctl({"cordon", "worker", "w1"}, "viewer");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("spiffe://d/viewer may not call"));
  EXPECT_THAT(refused.err, HasSubstr("operator may"));
  EXPECT_EQ(Syctl({"cordon", "worker", "w1"}, "admin").code, 0);

  const auto plain = Syctl({"get", "workers"}, "");
  EXPECT_EQ(plain.code, 1);
  EXPECT_THAT(plain.err, HasSubstr("unreachable"));
}

INSTANTIATE_TEST_SUITE_P(Any, TlsSyctlTest, ::testing::Values("tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace switchyard
