// Real handshakes over loopback: who gets in, and to what.
#include "services/security/transport_security.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/config/security_files.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "services/security/access.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::LeafWish;
using testing::TempDir;
using testing::TestAuthority;

constexpr char kServer[] = "spiffe://d/server";
constexpr char kGetPlan[] = "/switchyard.v1.CoordinatorService/GetPlan";
constexpr char kGetVersion[] = "/switchyard.v1.CoordinatorService/GetVersion";

std::string IdOf(Role role) { return absl::StrCat("spiffe://d/", RoleName(role)); }

// Every role has an id of its own; the server is coordinator and worker at once.
std::string Identities() {
  std::string text =
      absl::StrCat("identities:\n- id: ", kServer, "\n  roles: [coordinator, worker]\n");
  for (std::size_t i = 0; i < kRoleCount; ++i) {
    const auto role = static_cast<Role>(i);
    absl::StrAppend(&text, "- id: ", IdOf(role), "\n  roles: [", RoleName(role), "]\n");
  }
  return text;
}

// A process's files.
class Folder {
 public:
  Folder(TestAuthority& authority, const LeafWish& wish,
         const std::string& identities = Identities()) {
    authority.WriteFolder(dir_.path(), wish, identities);
  }
  [[nodiscard]] const std::string& path() const { return dir_.path(); }
  [[nodiscard]] std::shared_ptr<const TransportSecurity> Open() const {
    auto security = OpenSecurity(dir_.path(), nullptr);
    SY_EXPECT_OK(security.status());
    return security.ok() ? *security : nullptr;
  }

 private:
  TempDir dir_;
};

// All our services without handlers: who gets through is told UNIMPLEMENTED.
class TransportSecurityTest : public ::testing::Test {
 protected:
  TransportSecurityTest() : folder_(authority_, {.uris = {kServer}}) {
    GrpcServerOptions options;
    options.security = folder_.Open();
    auto server = GrpcServer::Start(options, {&coordinator_, &control_, &expert_});
    SY_EXPECT_OK(server.status());
    if (server.ok()) server_ = *std::move(server);
  }

  std::shared_ptr<grpc::Channel> ChannelOf(const Folder& folder, Role server = Role::kCoordinator) {
    return MakeGrpcChannel(server_->endpoint(), kControlMessageBytesMax, {},
                           {folder.Open(), server});
  }
  // The outcome of one call without a message.
  static absl::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& method) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(std::chrono::seconds(20)));
    grpc::CompletionQueue queue;
    auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(), &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return StatusFromGrpc(status);
  }
  absl::Status CallAs(const LeafWish& wish, const std::string& method = kGetPlan) {
    const Folder folder(authority_, wish);
    return Call(ChannelOf(folder), method);
  }

  TestAuthority authority_{"ours"};
  const Folder folder_;
  v1::CoordinatorService::CallbackService coordinator_;
  v1::WorkerControlService::CallbackService control_;
  v1::ExpertService::CallbackService expert_;
  std::unique_ptr<GrpcServer> server_;
};

// The roles that get through to each method are those of the table, for every pair.
TEST_F(TransportSecurityTest, EveryRoleGetsThroughToItsMethodsOnly) {
  for (std::size_t i = 0; i < kRoleCount; ++i) {
    const auto role = static_cast<Role>(i);
    const Folder folder(authority_, {.uris = {IdOf(role)}});
    const std::shared_ptr<grpc::Channel> channel = ChannelOf(folder);
    for (const MethodAccess& row : AccessTable()) {
      const absl::Status status = Call(channel, row.method);
      const std::string what = absl::StrCat(RoleName(role), " ", row.method);
      if (!row.roles.Has(role)) {
        EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << what << " " << status;
        EXPECT_THAT(
            std::string(status.message()),
            AllOf(HasSubstr(IdOf(role)), HasSubstr(row.method), HasSubstr(WhoMayCall(row.method))))
            << what;
      } else if (!absl::StrContains(row.method, "/grpc.health")) {
        EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << what << " " << status;
      } else {
        EXPECT_NE(status.code(), absl::StatusCode::kPermissionDenied) << what << " " << status;
      }
    }
    EXPECT_EQ(Call(channel, "/switchyard.v1.CoordinatorService/Unheard").code(),
              absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(TransportSecurityTest, CallersWithoutAKnownIdAreNobody) {
  // Their own process would not start with these, so they are a stranger's.
  const auto stranger = [this](const LeafWish& wish) {
    const testing::Leaf leaf = authority_.Issue(wish);
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority_.certificate();
    options.pem_cert_chain = leaf.certificate;
    options.pem_private_key = leaf.key;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("server");
    return Call(
        grpc::CreateCustomChannel(server_->endpoint(), grpc::SslCredentials(options), arguments),
        kGetPlan);
  };
  // That client compares the host's name, which our own does not.
  const Folder named(authority_, {.uris = {kServer}, .dns = {"server"}});
  GrpcServerOptions options;
  options.security = named.Open();
  SY_ASSERT_OK_AND_ASSIGN(server_, GrpcServer::Start(options, {&coordinator_}));

  EXPECT_EQ(stranger({.uris = {IdOf(Role::kOperator)}}).code(), absl::StatusCode::kUnimplemented);
  for (const LeafWish& wish : {LeafWish{.uris = {}}, LeafWish{.uris = {}, .dns = {"server"}},
                               LeafWish{.uris = {IdOf(Role::kOperator), IdOf(Role::kObserver)}},
                               LeafWish{.uris = {"spiffe://d/operator/more"}},
                               LeafWish{.uris = {"spiffe://e/operator"}}}) {
    const absl::Status status = stranger(wish);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated)
        << absl::StrJoin(wish.uris, " ") << ": " << status;
  }
}

// No request is served where the handshake fails.
TEST_F(TransportSecurityTest, HandshakesFailWithoutAGoodCertificate) {
  TestAuthority other("other");
  const std::vector<std::string> id{IdOf(Role::kOperator)};
  const auto unavailable = [this](const std::shared_ptr<grpc::Channel>& channel, const char* what) {
    const absl::Status status = Call(channel, kGetPlan);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << what << ": " << status;
  };
  unavailable(MakeGrpcChannel(server_->endpoint(), kControlMessageBytesMax), "plain");
  const Folder wrong(other, {.uris = id});
  unavailable(ChannelOf(wrong), "of another authority");
  const Folder expired(authority_, {.uris = id, .valid_from_s = -7200, .valid_until_s = -3600});
  unavailable(ChannelOf(expired), "expired");
  const Folder early(authority_, {.uris = id, .valid_from_s = 3600, .valid_until_s = 7200});
  unavailable(ChannelOf(early), "not yet valid");
  grpc::SslCredentialsOptions anonymous;
  anonymous.pem_root_certs = authority_.certificate();
  unavailable(grpc::CreateChannel(server_->endpoint(), grpc::SslCredentials(anonymous)),
              "without a certificate");
  EXPECT_EQ(CallAs({.uris = id}).code(), absl::StatusCode::kUnimplemented);
}

// A worker's certificate that has the coordinator's name of a host makes no coordinator of it.
TEST_F(TransportSecurityTest, ClientsCheckTheServersRole) {
  const Folder posing(authority_, {.uris = {IdOf(Role::kWorker)}, .dns = {"coordinator"}});
  GrpcServerOptions options;
  options.security = posing.Open();
  SY_ASSERT_OK_AND_ASSIGN(server_, GrpcServer::Start(options, {&coordinator_, &expert_}));
  const Folder source(authority_, {.uris = {IdOf(Role::kSource)}});

  const absl::Status refused =
      Call(ChannelOf(source), "/switchyard.v1.CoordinatorService/OpenSession");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_EQ(Call(ChannelOf(source, Role::kWorker), "/switchyard.v1.ExpertService/Attach").code(),
            absl::StatusCode::kUnimplemented);
}

// Within seconds and without a restart, for connections that are there already.
TEST_F(TransportSecurityTest, ARemovedIdIsNobodyFromThenOn) {
  const Folder folder(authority_, {.uris = {IdOf(Role::kObserver)}});
  const std::shared_ptr<grpc::Channel> channel = ChannelOf(folder);
  ASSERT_EQ(Call(channel, kGetPlan).code(), absl::StatusCode::kUnimplemented);
  testing::ReplaceFile(absl::StrCat(folder_.path(), "/", kIdentitiesFile),
                       absl::StrCat("identities:\n- id: ", kServer, "\n  roles: [coordinator]\n"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  absl::Status status;
  do {
    status = Call(channel, kGetPlan);
  } while (status.code() == absl::StatusCode::kUnimplemented &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
}

// The authority changes under a server that runs: with both in the bundle nobody is refused, and
// in the end the old one's certificates are.
TEST_F(TransportSecurityTest, AnAuthorityIsReplacedWithoutARestart) {
  TestAuthority next("next");
  const std::vector<std::string> id{IdOf(Role::kOperator)};
  const Folder old_client(authority_, {.uris = id});
  const Folder new_client(next, {.uris = id});
  const auto trusts = [](const Folder& folder, const std::string& bundle) {
    testing::ReplaceFile(absl::StrCat(folder.path(), "/", kCaFile), bundle);
  };
  const std::string both = authority_.certificate() + next.certificate();
  trusts(new_client, both);
  EXPECT_EQ(Call(ChannelOf(new_client), kGetPlan).code(), absl::StatusCode::kUnavailable);

  const auto until = [&](const Folder& client, absl::StatusCode code) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    absl::Status status;
    do {
      status = Call(ChannelOf(client), kGetPlan);
    } while (status.code() != code && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(status.code(), code) << status;
  };
  trusts(folder_, both);
  until(new_client, absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Call(ChannelOf(old_client), kGetPlan).code(), absl::StatusCode::kUnimplemented);
  trusts(folder_, next.certificate());
  until(old_client, absl::StatusCode::kUnavailable);
  EXPECT_EQ(Call(ChannelOf(new_client), kGetPlan).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(TransportSecurityTest, SaysHowLongTheFileIsValidNow) {
  const Folder folder(authority_, {.uris = {kServer}});
  SY_ASSERT_OK_AND_ASSIGN(const auto security, OpenSecurity(folder.path(), nullptr));
  const std::int64_t before = security->OwnNow().not_after_s;
  EXPECT_EQ(before, security->own().not_after_s);

  const Folder renewed(authority_, {.uris = {kServer}, .valid_until_s = 500000});
  for (const char* file : {"/ca.crt", "/tls.crt", "/tls.key"}) {
    std::filesystem::copy_file(renewed.path() + file, folder.path() + file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_GE(security->OwnNow().not_after_s, before + 400000);
  EXPECT_EQ(security->own().not_after_s, before);

  std::filesystem::remove(folder.path() + "/tls.crt");
  EXPECT_EQ(security->OwnNow().not_after_s, before);
}

// A table that changes at each look: in every other one the source has no tenant and may do
// nothing. Whoever asked two of them could let it in and then find no tenant, which means without a
// limit.
TEST_F(TransportSecurityTest, ACallIsAdmittedAndItsTenantFoundByOneTable) {
  class HastyClock final : public Clock {
   public:
    [[nodiscard]] TimePoint Now() const override { return now_ += std::chrono::seconds(2); }

   private:
    mutable TimePoint now_{};
  };
  const std::string source = IdOf(Role::kSource);
  int loads = 0;
  const auto load = [&]() -> absl::StatusOr<IdentityTable> {
    auto table =
        IdentityTable::Create({{kServer, {Role::kCoordinator}}, {source, {Role::kSource}}});
    const std::string id = ++loads % 2 == 0 ? source : "spiffe://d/other";
    SY_EXPECT_OK(table->AddTenants({{.name = "t", .ids = {id}, .sessions_max = 1}}));
    return table;
  };
  SY_ASSERT_OK_AND_ASSIGN(auto watch,
                          TableWatch::Create(load, std::make_shared<HastyClock>(), nullptr));
  SY_ASSERT_OK_AND_ASSIGN(const auto security,
                          TransportSecurity::Create(TlsFilesIn(folder_.path()), std::move(watch)));
  int admitted = 0;
  for (int i = 0; i < 8; ++i) {
    const auto tenant = security->Admit(source, "/switchyard.v1.CoordinatorService/OpenSession");
    if (tenant.ok()) {
      ASSERT_NE(*tenant, nullptr);
      EXPECT_EQ((*tenant)->sessions_max, 1U);
      ++admitted;
    } else {
      EXPECT_EQ(tenant.status().code(), absl::StatusCode::kPermissionDenied);
    }
  }
  EXPECT_EQ(admitted, 4);
  SY_ASSERT_OK_AND_ASSIGN(const TenantRef none, security->Admit(kServer, kGetVersion));
  EXPECT_EQ(none, nullptr) << "a coordinator needs none";
}

TEST_F(TransportSecurityTest, AProcessThatTheTableDoesNotKnowDoesNotBegin) {
  const Folder folder(authority_, {.uris = {"spiffe://d/nobody"}});
  const absl::Status status = OpenSecurity(folder.path(), nullptr).status();
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spiffe://d/nobody"));
}

}  // namespace
}  // namespace switchyard
