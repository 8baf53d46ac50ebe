// The authority of a deployment is replaced while one session makes steps and others come and go:
// no call fails, and afterwards whoever has a certificate of the old one stays outside.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "grpc/grpc_security_constants.h"
#include "services/config/security_files.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "services/security/authority.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::Batch;
using ::testing::HasSubstr;
using testing::Processes;
using testing::ReadBytes;
using testing::ReplaceFile;
using testing::RunProgram;
using testing::RunStep;
using testing::StepLoad;
using testing::TempDir;

constexpr std::int32_t kLayer = 1;
// Processes read their files every ten seconds.
constexpr Duration kReadAgain = seconds(12);

class TlsRotationTest : public Processes {
 protected:
  void SetUp() override {
    ASSERT_THAT(Ensure({"--trust-domain", "d"}), HasSubstr("made"));
    LocalDeploymentOptions options;
    options.min_workers = 1;
    options.coordinator_flags = {"--tls-dir", FolderOf("coordinator")};
    options.worker_flags = {"--tls-dir", FolderOf("worker")};
    Deploy(2, std::move(options));
  }
  [[nodiscard]] std::string FolderOf(const std::string& who) const {
    return absl::StrCat(dir_.Join("certs"), "/", who);
  }
  std::string Ensure(const std::vector<std::string>& more) {
    std::vector<std::string> words = {absl::StrCat(testing::kBinDir, "/syctl"), "certs", "ensure",
                                      dir_.Join("certs")};
    words.insert(words.end(), more.begin(), more.end());
    const auto done = RunProgram(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  }
  // The next run finds the phase old enough. The test itself waits as long as processes need here.
  void LetThePhaseBeOld() {
    const std::string path = FolderOf("authority/rotation.yaml");
    std::string text = ReadBytes(path);
    const std::size_t at = text.find("since: ");
    ASSERT_NE(at, std::string::npos);
    ReplaceFile(path, text.replace(at, text.find('\n', at) - at, "since: 2020-01-01T00:00:00Z"));
  }

  [[nodiscard]] ClientOptions AsSource() const { return WithTlsDir(FolderOf("source")); }
  // A connection, a session and a step of its own, in turn through a gateway and without one.
  absl::Status StepOfANewClient() {
    const bool gateway = ++clients_ % 2 == 0;
    SY_ASSIGN_OR_RETURN(const auto client, Connect(gateway ? "gateway" : "tcp", AsSource()));
    SY_ASSIGN_OR_RETURN(const auto session, client->Open({}));
    Batch batch(2, 7);
    return RunStep(*session, batch, kLayer);
  }

  // A new connection with the certificate of a folder to the coordinator and each worker.
  struct Handshake {
    absl::Status status;
    std::string peer;  // its certificate
  };
  template <typename Service, typename Request, typename Answer, typename Call>
  Handshake Shake(const std::string& folder, const std::string& endpoint, Role role, Call call) {
    auto security = OpenSecurity(folder, nullptr);
    if (!security.ok()) return {security.status(), ""};
    const auto stub =
        Service::NewStub(MakeGrpcChannel(endpoint, kStepMessageBytesMax, {}, {*security, role}));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(10)));
    Answer answer;
    const absl::Status status = StatusFromGrpc(call(*stub, &context, Request(), &answer));
    if (!status.ok()) return {status, ""};
    const auto peer = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    return {status, peer.empty() ? "" : std::string(peer.front().data(), peer.front().size())};
  }
  std::vector<Handshake> ShakeAll(const std::string& folder) {
    std::vector<Handshake> all;
    all.push_back(Shake<v1::CoordinatorService, v1::GetVersionRequest, v1::GetVersionResponse>(
        folder, deployment_->coordinator(), Role::kCoordinator,
        [](auto& stub, auto* context, const auto& request, auto* answer) {
          return stub.GetVersion(context, request, answer);
        }));
    for (std::size_t worker = 0; worker < 2; ++worker) {
      all.push_back(Shake<v1::ExpertService, v1::GetStatusRequest, v1::GetStatusResponse>(
          folder, deployment_->worker_address(worker), Role::kWorker,
          [](auto& stub, auto* context, const auto& request, auto* answer) {
            return stub.GetStatus(context, request, answer);
          }));
    }
    return all;
  }
  // Gives processes the time to read the files, while observers connect again and again. One worker
  // starts anew, so that it has the files at once and meets peers that do not.
  void LetAllRead(MoeSession& watcher) {
    const auto until = std::chrono::steady_clock::now() + kReadAgain;
    deployment_->worker_process(1).Signal(SIGTERM);
    SY_ASSERT_OK(deployment_->worker_process(1).Wait(seconds(40)).status());
    ASSERT_TRUE(WaitForWorkers(watcher, 1));
    SY_ASSERT_OK(deployment_->RestartWorker(1));
    ASSERT_TRUE(WaitForWorkers(watcher, 2));
    while (std::chrono::steady_clock::now() < until) {
      for (const Handshake& each : ShakeAll(FolderOf("observer"))) SY_ASSERT_OK(each.status);
    }
  }

  TempDir dir_;
  int clients_ = 0;
};

TEST_F(TlsRotationTest, ANewAuthorityFailsNoCallAndEndsTheOldOne) {
  SY_ASSERT_OK_AND_ASSIGN(const auto watcher_client, Connect("auto", AsSource()));
  SY_ASSERT_OK_AND_ASSIGN(const auto watcher,
                          watcher_client->OpenWhenReady({}, testing::kReadyTimeout));
  ASSERT_TRUE(WaitForWorkers(*watcher, 2));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("tcp", AsSource()));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
  Batch batch(4, 5);
  StepLoad steps([&] { return RunStep(*session, batch, kLayer); });
  StepLoad newcomers([&] { return StepOfANewClient(); });

  ASSERT_THAT(Ensure({"--rotate-authority", "a"}), HasSubstr("\"phase\": \"announced\""));
  const KeyedCertificate next{ReadBytes(FolderOf("authority/next.crt")),
                              ReadBytes(FolderOf("authority/next.key"))};
  const std::string old_authority = ReadBytes(FolderOf("authority/ca.crt"));
  ASSERT_NO_FATAL_FAILURE(LetAllRead(*watcher));
  // Who comes with the next one's certificate is let in everywhere, before anybody has one.
  const std::string early = FolderOf("early");
  std::filesystem::copy(FolderOf("observer"), early);
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf,
                          IssueCertificate(next, "spiffe://d/observer", 1));
  ReplaceFile(early + "/tls.key", leaf.key);
  ReplaceFile(early + "/tls.crt", leaf.certificate);
  for (const Handshake& each : ShakeAll(early)) {
    SY_EXPECT_OK(each.status);
    SY_EXPECT_OK(CheckIssuer(each.peer, old_authority));
  }
  std::filesystem::remove_all(early);
  const std::string late = dir_.Join("late");
  std::filesystem::copy(FolderOf("observer"), late);

  LetThePhaseBeOld();
  ASSERT_THAT(Ensure({}), HasSubstr("\"phase\": \"switched\""));
  ASSERT_NO_FATAL_FAILURE(LetAllRead(*watcher));
  for (const std::string& folder : {FolderOf("observer"), late}) {
    for (const Handshake& each : ShakeAll(folder)) {
      SY_EXPECT_OK(each.status);
      SY_EXPECT_OK(CheckIssuer(each.peer, next.certificate));
    }
  }

  LetThePhaseBeOld();
  ASSERT_THAT(Ensure({}), HasSubstr("\"phase\": \"settled\""));
  ASSERT_NO_FATAL_FAILURE(LetAllRead(*watcher));
  for (const Handshake& each : ShakeAll(FolderOf("observer"))) SY_EXPECT_OK(each.status);
  for (const Handshake& each : ShakeAll(late)) {
    EXPECT_EQ(each.status.code(), absl::StatusCode::kUnavailable) << each.status;
  }

  steps.Stop();
  newcomers.Stop();
  EXPECT_EQ(steps.failed(), 0) << steps.first_error();
  EXPECT_EQ(newcomers.failed(), 0) << newcomers.first_error();
  EXPECT_GT(newcomers.steps(), 30);
  // The session is of a connection from before all of it.
  SY_EXPECT_OK(RunStep(*session, batch, kLayer));
}

}  // namespace
}  // namespace switchyard
