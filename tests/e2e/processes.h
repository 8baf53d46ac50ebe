// A deployment of processes and a client of it, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "harness/local_deployment.h"
#include "tests/e2e/batch.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::testing {

inline constexpr char kBinDir[] = SWITCHYARD_BIN_DIR;
inline constexpr Duration kReadyTimeout = std::chrono::seconds(30);

class Processes : public ::testing::Test {
 protected:
  // The shipped model on `workers` workers, unless `options` says otherwise. Their UCX stays on the
  // interface that they listen on, which is the loopback one.
  void Deploy(std::int32_t workers, LocalDeploymentOptions options = {}) {
    if (options.bin_dir.empty()) options.bin_dir = kBinDir;
    if (options.checkpoint.empty()) options.checkpoint = kShippedModel;
    options.workers = workers;
    if (options.host == LocalDeploymentOptions().host) {
      options.worker_flags.insert(options.worker_flags.end(), {"--net-devices", "lo"});
    }
    SY_ASSERT_OK_AND_ASSIGN(deployment_, LocalDeployment::Start(std::move(options)));
  }

  // "tcp", "shm", "auto" or "gateway" (through worker 0). What `options` says besides is kept.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& transport,
                                                                ClientOptions options = {}) {
    options.net_devices = "lo";
    if (transport == "gateway") {
      options.gateway = deployment_->worker_address(0);
    } else {
      options.coordinator = deployment_->coordinator();
      TransportChoiceFromName(transport, &options.transport);
    }
    return Client::Connect(options);
  }

  static ClientOptions WithTlsDir(const std::string& dir) {
    ClientOptions options;
    options.tls_dir = dir;
    return options;
  }
  static ClientOptions WithRingDir(const std::string& dir) {
    ClientOptions options;
    options.ring_dir = dir;
    return options;
  }

  // Waits until the session's plan has as many workers.
  static bool WaitForWorkers(MoeSession& session, std::size_t workers) {
    const auto until = std::chrono::steady_clock::now() + kReadyTimeout;
    while (std::chrono::steady_clock::now() < until) {
      const auto grant = session.Grant();
      if (grant.ok() && grant->plan.workers.size() == workers) return true;
      std::this_thread::yield();
    }
    return false;
  }

  std::unique_ptr<LocalDeployment> deployment_;
};

}  // namespace switchyard::testing
