// A deployment with mutual TLS and callers with certificates of their own, for tests that send what
// no program of ours sends.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "services/config/security_files.h"
#include "services/grpc/grpc_server.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "tests/e2e/processes.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard::testing {

// The text of a file of identities: names and their roles.
inline std::string Table(const std::map<std::string, std::string>& roles) {
  std::string text = "identities:\n";
  for (const auto& [name, role] : roles) {
    absl::StrAppend(&text, "- {id: spiffe://d/", name, ", roles: [", role, "]}\n");
  }
  return text;
}

class TlsCallers : public Processes {
 protected:
  // Names of processes and callers, and their roles; all have a folder with a certificate.
  std::map<std::string, std::string> roles_{
      {"coordinator", "coordinator"}, {"worker", "worker"}, {"engine-a", "source"},
      {"engine-b", "source"},         {"thief", "worker"},  {"worker-b", "worker"},
      {"admin", "operator"}};

  // Additional ones of the coordinator and of all workers; set before SetUp.
  std::vector<std::string> flags_;
  std::vector<std::string> worker_flags_;  // of all workers only

  void SetUp() override {
    for (const auto& [name, role] : roles_) {
      std::filesystem::create_directory(FolderOf(name));
      authority_.WriteFolder(FolderOf(name), {.uris = {absl::StrCat("spiffe://d/", name)}},
                             Table(roles_));
      auto security = OpenSecurity(FolderOf(name), nullptr);
      SY_ASSERT_OK(security.status());
      security_[name] = *std::move(security);
    }
    LocalDeploymentOptions options;
    options.coordinator_flags = {"--tls-dir", FolderOf("coordinator")};
    options.worker_flags = {"--tls-dir", FolderOf("worker")};
    for (auto* flags : {&options.coordinator_flags, &options.worker_flags}) {
      flags->insert(flags->end(), flags_.begin(), flags_.end());
    }
    options.worker_flags.insert(options.worker_flags.end(), worker_flags_.begin(),
                                worker_flags_.end());
    Deploy(2, std::move(options));
    ASSERT_NE(deployment_, nullptr);
    client_ = ClientAs("engine-a", "tcp");
    ASSERT_NE(client_, nullptr);
    SY_ASSERT_OK(client_->OpenWhenReady({}, kReadyTimeout).status());
  }
  [[nodiscard]] std::string FolderOf(const std::string& name) const { return dir_.Join(name); }
  // What the processes go by from now on.
  void ChangeTable(const std::map<std::string, std::string>& roles) {
    for (const char* server : {"coordinator", "worker"}) {
      ReplaceFile(absl::StrCat(FolderOf(server), "/", kIdentitiesFile), Table(roles));
    }
  }
  void Remove(const std::string& name) {
    std::map<std::string, std::string> rest = roles_;
    rest.erase(name);
    ChangeTable(rest);
  }

  std::unique_ptr<Client> ClientAs(const std::string& name, const std::string& transport) {
    auto client = Connect(transport, WithTlsDir(FolderOf(name)));
    SY_EXPECT_OK(client.status());
    return client.ok() ? *std::move(client) : nullptr;
  }
  std::shared_ptr<grpc::Channel> ChannelAs(const std::string& name, Role server) {
    const std::string& to =
        server == Role::kCoordinator ? deployment_->coordinator() : deployment_->worker_address(0);
    return MakeGrpcChannel(to, kStepMessageBytesMax, {}, {security_.at(name), server});
  }
  std::unique_ptr<v1::CoordinatorService::Stub> CoordinatorAs(const std::string& name) {
    return v1::CoordinatorService::NewStub(ChannelAs(name, Role::kCoordinator));
  }
  std::unique_ptr<v1::ExpertService::Stub> WorkerAs(const std::string& name) {
    return v1::ExpertService::NewStub(ChannelAs(name, Role::kWorker));
  }

  std::unique_ptr<v1::WorkerControlService::Stub> ControlAs(const std::string& name) {
    return v1::WorkerControlService::NewStub(ChannelAs(name, Role::kCoordinator));
  }
  // A worker of this id, which nobody reaches.
  static Register Member(const std::string& id) {
    Register request{};
    request.worker_id = id;
    request.incarnation = {1, 2};
    request.endpoint = "127.0.0.1:1";
    request.capabilities.device_profile = "cpu";
    request.secret = {3, 4};
    return request;
  }

  TempDir dir_;
  TestAuthority authority_{"ours"};
  std::map<std::string, std::shared_ptr<const TransportSecurity>> security_;
  std::unique_ptr<Client> client_;  // of engine-a
};

}  // namespace switchyard::testing
