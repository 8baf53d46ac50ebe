// Two tenants of one deployment: what is another's does not exist, limits hold for one and not for
// the other, whose answers keep their bits, and a change of the file of tenants ends streams.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/convert/control.h"
#include "services/convert/session.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_status.h"
#include "tests/e2e/step_load.h"
#include "tests/e2e/tls_callers.h"
#include "tests/testing/program.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::Batch;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReplaceFile;
using testing::RunStep;
using testing::StepLoad;
using testing::TlsCallers;

constexpr char kRedName[] = "canary-red-5b1e";
constexpr char kBlueName[] = "canary-blue-90c7";
// After the file has changed; the processes look at it once a second.
constexpr Duration kEndsWithin = seconds(5);
const auto kFull = FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions);
const auto kNoModel = FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel);

class TlsTenantsTest : public TlsCallers {
 protected:
  void SetUp() override {
    roles_["stray"] = "source";
    WriteTenants(/*with_blue=*/true);
    flags_ = {"--tenants", tenants_, "--log-level", "debug"};
    worker_flags_ = {"--gateway-sessions-max", "8"};
    TlsCallers::SetUp();
  }
  // Red may use the shipped model and have two sessions; blue may do everything.
  void WriteTenants(bool with_blue) {
    std::string text = absl::StrCat("tenants:\n- name: ", kRedName,
                                    "\n  ids: [spiffe://d/engine-a]\n  models: [sqlite-moe-7m]\n"
                                    "  limits: {sessions: 2, gateway_memory_bytes: 65536}\n");
    if (with_blue) {
      absl::StrAppend(&text, "- name: ", kBlueName, "\n  ids: [spiffe://d/engine-b]\n");
    }
    ReplaceFile(tenants_, text);
  }
  testing::ProgramResult Syctl(std::vector<std::string> words) {
    words.insert(words.begin(), absl::StrCat(testing::kBinDir, "/syctl"));
    words.insert(words.end(),
                 {"--target", deployment_->coordinator(), "--tls-dir", FolderOf("admin")});
    return testing::RunProgram(words);
  }
  // The same experts under another name, of a model that red may not use.
  void ApplyOther() {
    const std::string file =
        dir_.Write("other.yaml", absl::StrCat("name: other\nmodel: secret-model\ncheckpoint: ",
                                              testing::kShippedModel, "\nmin_workers: 2\n"));
    const testing::ProgramResult applied = Syctl({"apply", "-f", file, "--wait"});
    ASSERT_EQ(applied.code, 0) << applied.err;
  }
  static OpenSessionRequest To(const std::string& deployment) {
    OpenSessionRequest order;
    order.deployment = deployment;
    order.step_deadline = seconds(2);
    order.mode = DispatchMode::kLowLatency;
    return order;
  }
  absl::Status OpenTo(Client& client, const std::string& deployment) {
    return client.Open(To(deployment)).status();
  }
  // How a step ends that is repeated until it fails.
  static absl::Status EndOf(MoeSession& session, Batch& batch) {
    const auto until = std::chrono::steady_clock::now() + kEndsWithin;
    absl::Status step;
    do {
      step = RunStep(session, batch, 0);
    } while (step.ok() && std::chrono::steady_clock::now() < until);
    return step;
  }

  const std::string tenants_ = dir_.Join("tenants.yaml");
};

TEST_F(TlsTenantsTest, ATenantAtItsLimitLeavesOthersAlone) {
  const auto gateway = ClientAs("engine-a", "gateway");
  const auto blue = ClientAs("engine-b", "tcp");
  const auto blue_gateway = ClientAs("engine-b", "gateway");
  SY_ASSERT_OK_AND_ASSIGN(const auto session, blue->OpenWhenReady(To("local"), seconds(20)));
  Batch before(4, 7);
  SY_ASSERT_OK(RunStep(*session, before, 1));
  Batch batch(4, 7);
  StepLoad load([&]() -> absl::Status {
    const absl::Status status = RunStep(*session, batch, 1);
    if (status.ok() && batch.y != before.y) return absl::DataLossError("other bits");
    return status;
  });

  SY_ASSERT_OK_AND_ASSIGN(auto first, client_->Open(To("local")));
  SY_ASSERT_OK_AND_ASSIGN(const auto second, gateway->Open(To("local")));
  for (Client* client : {client_.get(), gateway.get()}) {
    const absl::Status full = OpenTo(*client, "local");
    EXPECT_THAT(full, kFull);
    EXPECT_THAT(std::string(full.message()),
                HasSubstr("the tenant of spiffe://d/engine-a has 2 sessions open and may have 2"));
    EXPECT_THAT(full.ToString(), Not(HasSubstr("canary")));
  }
  SY_EXPECT_OK(OpenTo(*blue, "local"));
  SY_EXPECT_OK(OpenTo(*blue_gateway, "local"));
  Batch red(4, 8);
  SY_EXPECT_OK(RunStep(*first, red, 0));
  SY_EXPECT_OK(RunStep(*second, red, 0));
  first.reset();
  SY_EXPECT_OK(OpenTo(*gateway, "local"));

  const int seen = load.steps();
  while (load.steps() < seen + 10) std::this_thread::yield();
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
}

TEST_F(TlsTenantsTest, StepsOfATenantTakeItsPartOfAGatewaysMemory) {
  const auto red = ClientAs("engine-a", "gateway");
  const auto blue = ClientAs("engine-b", "gateway");
  SY_ASSERT_OK_AND_ASSIGN(const auto mine, red->OpenWhenReady(To("local"), seconds(20)));
  SY_ASSERT_OK_AND_ASSIGN(const auto others, blue->Open(To("local")));
  Batch large(100, 3);
  const absl::Status refused = RunStep(*mine, large, 0);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the steps of the tenant of spiffe://d/engine-a hold"));
  SY_EXPECT_OK(RunStep(*others, large, 0));
  Batch small(4, 3);
  SY_EXPECT_OK(RunStep(*mine, small, 0));
}

// A session takes one of the gateway's threads, however little it does.
TEST_F(TlsTenantsTest, ATenantTakesHalfOfAGatewaysSessions) {
  const auto blue = ClientAs("engine-b", "gateway");
  const auto red = ClientAs("engine-a", "gateway");
  std::vector<std::unique_ptr<MoeSession>> sessions;
  for (int i = 0; i < 4; ++i) {
    SY_ASSERT_OK_AND_ASSIGN(auto session, blue->OpenWhenReady(To("local"), seconds(20)));
    sessions.push_back(std::move(session));
  }

  const absl::Status fifth = OpenTo(*blue, "local");

  EXPECT_THAT(fifth, kFull);
  EXPECT_THAT(std::string(fifth.message()),
              HasSubstr("already serves 4 sessions of the tenant of spiffe://d/engine-b"));
  EXPECT_THAT(fifth.ToString(), Not(HasSubstr("canary")));
  SY_EXPECT_OK(OpenTo(*red, "local"));
  sessions.pop_back();
  // The thread is free a moment after the stream has ended.
  absl::Status again;
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  do {
    again = OpenTo(*blue, "local");
  } while (!again.ok() && std::chrono::steady_clock::now() < until);
  SY_EXPECT_OK(again);
}

TEST_F(TlsTenantsTest, ModelsOfOthersDoNotExist) {
  ApplyOther();
  const auto gateway = ClientAs("engine-a", "gateway");
  for (Client* client : {client_.get(), gateway.get()}) {
    const absl::Status denied = OpenTo(*client, "other");
    EXPECT_THAT(denied, kNoModel);
    EXPECT_EQ(absl::StrReplaceAll(denied.ToString(), {{"\"other\"", "X"}, {"=other", "=X"}}),
              absl::StrReplaceAll(OpenTo(*client, "never").ToString(),
                                  {{"\"never\"", "X"}, {"=never", "=X"}}));
    // It need not name the only one that there is for it.
    SY_EXPECT_OK(OpenTo(*client, ""));
  }
  const auto blue = ClientAs("engine-b", "gateway");
  SY_EXPECT_OK(OpenTo(*blue, "other"));
  const absl::Status two = OpenTo(*blue, "");
  EXPECT_THAT(two, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST_F(TlsTenantsTest, ASourceOfNoTenantMayDoNothing) {
  for (const char* transport : {"tcp", "gateway"}) {
    const auto stray = ClientAs("stray", transport);
    const absl::Status denied = OpenTo(*stray, "local");
    EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << denied;
    EXPECT_THAT(std::string(denied.message()), HasSubstr("spiffe://d/stray may not call"));
  }
}

TEST_F(TlsTenantsTest, ATenantThatIsTakenOutHasNoStreamFiveSecondsLater) {
  const auto blue = ClientAs("engine-b", "tcp");
  const auto blue_gateway = ClientAs("engine-b", "gateway");
  SY_ASSERT_OK_AND_ASSIGN(const auto attached, blue->OpenWhenReady(To("local"), seconds(20)));
  SY_ASSERT_OK_AND_ASSIGN(const auto through, blue_gateway->Open(To("local")));
  Batch batch(4, 9);
  SY_ASSERT_OK(RunStep(*attached, batch, 0));
  SY_ASSERT_OK(RunStep(*through, batch, 0));
  // An idle stream, too.
  const auto stub = WorkerAs("engine-b");
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(60)));
  const auto stream = stub->Forward(&context);
  v1::ForwardRequest open;
  open.mutable_open();
  stream->Write(open);
  v1::ForwardResponse response;
  ASSERT_TRUE(stream->Read(&response));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client_->Open(To("local")));
  Batch red(4, 10);
  StepLoad load([&] { return RunStep(*session, red, 0); });

  WriteTenants(/*with_blue=*/false);
  const auto begin = std::chrono::steady_clock::now();
  while (stream->Read(&response)) {
  }
  const absl::Status end = StatusFromGrpc(stream->Finish());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kEndsWithin);
  EXPECT_EQ(end.code(), absl::StatusCode::kPermissionDenied) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("is in none of them"));
  EXPECT_FALSE(EndOf(*attached, batch).ok());
  EXPECT_FALSE(EndOf(*through, batch).ok());
  EXPECT_EQ(OpenTo(*blue, "local").code(), absl::StatusCode::kPermissionDenied);

  // Back again, while the other one has gone on all the time.
  WriteTenants(/*with_blue=*/true);
  absl::Status back;
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  do {
    back = OpenTo(*blue, "local");
  } while (!back.ok() && std::chrono::steady_clock::now() < until);
  SY_EXPECT_OK(back);
  const int seen = load.steps();
  while (load.steps() < seen + 10) std::this_thread::yield();
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
}

// A source that knows the id of another's session, and asks a worker about it.
TEST_F(TlsTenantsTest, ASourceSeesItsOwnCountersOnly) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client_->Open(To("local")));
  Batch batch(4, 12);
  SY_ASSERT_OK(RunStep(*session, batch, 0));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
  const auto status_as = [&](const std::string& name, const std::string& id,
                             v1::GetStatusResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    v1::GetStatusRequest request;
    request.set_session_id(id);
    request.set_metrics(true);
    return StatusFromGrpc(WorkerAs(name)->GetStatus(&context, request, response));
  };
  const std::string id = ToHex(grant.session);
  const std::string never = ToHex(SessionId{1, 2});

  v1::GetStatusResponse own;
  SY_ASSERT_OK(status_as("engine-a", id, &own));
  EXPECT_EQ(own.attachments_size(), 1);
  v1::GetStatusResponse none;
  const absl::Status denied = status_as("engine-b", id, &none);
  EXPECT_THAT(denied, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
  EXPECT_EQ(absl::StrReplaceAll(denied.ToString(), {{id, "ID"}}),
            absl::StrReplaceAll(status_as("engine-b", never, &none).ToString(), {{never, "ID"}}));
  // Nor what is served, which may be models of others.
  v1::GetStatusResponse all;
  SY_ASSERT_OK(status_as("engine-b", "", &all));
  EXPECT_EQ(all.worker_id(), "w0");
  EXPECT_EQ(all.epochs_size(), 0);
  EXPECT_EQ(all.metrics_size(), 0);
  EXPECT_FALSE(all.has_experts());
  v1::GetStatusResponse seen;
  SY_ASSERT_OK(status_as("admin", id, &seen));
  EXPECT_EQ(seen.attachments_size(), 1);
  EXPECT_EQ(seen.epochs_size(), 1);
}

// Of what a tenant is called, nothing is told anywhere, whatever it does and the file says.
TEST_F(TlsTenantsTest, NamesOfTenantsAreInNoLogMetricOrAnswer) {
  ApplyOther();
  const auto blue = ClientAs("engine-b", "gateway");
  SY_ASSERT_OK_AND_ASSIGN(const auto session, blue->Open(To("local")));
  SY_ASSERT_OK_AND_ASSIGN(const auto one, client_->Open(To("local")));
  SY_ASSERT_OK_AND_ASSIGN(const auto two, client_->Open(To("local")));
  std::string texts =
      absl::StrCat(OpenTo(*client_, "local").ToString(), OpenTo(*client_, "other").ToString());
  // A file that is wrong is logged, and changes nothing.
  ReplaceFile(tenants_, absl::StrCat("tenants:\n- name: ", kRedName, "\n- name: ", kRedName, "\n"));
  const std::string log = absl::StrCat(deployment_->directory(), "/coordinator.log");
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  while (!absl::StrContains(read(log), "the identities stay as they were") &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_THAT(read(log), HasSubstr("tenants[0].ids: needs the ids of callers"));
  EXPECT_THAT(OpenTo(*client_, "local"), kFull);
  const std::vector<std::vector<std::string>> commands{{"get", "sessions", "-o", "json"},
                                                       {"get", "events", "-o", "json"},
                                                       {"get", "deployments", "-o", "json"},
                                                       {"describe", "deployment", "local"},
                                                       {"get", "metrics", "coordinator"},
                                                       {"get", "metrics", "w0"},
                                                       {"top", "-o", "json"},
                                                       {"doctor"}};
  for (const std::vector<std::string>& words : commands) {
    const testing::ProgramResult result = Syctl(words);
    EXPECT_FALSE(result.out.empty()) << words[0] << result.err;
    absl::StrAppend(&texts, result.out, result.err);
  }
  int logs = 0;
  for (const auto& file : std::filesystem::directory_iterator(deployment_->directory())) {
    if (file.path().extension() != ".log") continue;
    absl::StrAppend(&texts, read(file.path()));
    ++logs;
  }
  EXPECT_EQ(logs, 3);
  EXPECT_THAT(texts, HasSubstr("engine-a")) << "the search sees what is told";
  EXPECT_THAT(texts, Not(HasSubstr("canary")));
}

}  // namespace
}  // namespace switchyard
