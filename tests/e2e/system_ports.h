// Programs with system ports, for tests.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "client/client.h"
#include "core/base/status_macros.h"
#include "harness/child_process.h"
#include "tests/e2e/batch.h"
#include "tests/testing/http_client.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

inline constexpr Duration kProgramTimeout = std::chrono::seconds(60);

class SystemPorts : public ::testing::Test {
 protected:
  // A program with a system port.
  struct Running {
    std::unique_ptr<ChildProcess> process;
    std::string system;    // "host:port"
    std::string endpoint;  // of gRPC
  };

  absl::StatusOr<Running> Start(const std::string& program, std::vector<std::string> flags,
                                const std::string& id = "") {
    flags.insert(flags.begin(), absl::StrCat(SWITCHYARD_BIN_DIR, "/", program));
    flags.insert(flags.end(), {"--system-port", "0", "--listen", "127.0.0.1:0"});
    Running running;
    SY_ASSIGN_OR_RETURN(ChildProcess process,
                        ChildProcess::Spawn(flags, folder_.Join(program + id + ".log")));
    running.process = std::make_unique<ChildProcess>(std::move(process));
    SY_ASSIGN_OR_RETURN(running.system, running.process->WaitForLine("system ", kProgramTimeout));
    SY_ASSIGN_OR_RETURN(running.endpoint, running.process->WaitForLine("ready ", kProgramTimeout));
    return running;
  }
  absl::StatusOr<Running> StartCoordinator() {
    return Start("switchyard-coordinator", {"--store", "sqlite:" + folder_.Join("store")});
  }
  absl::StatusOr<Running> StartWorker(const std::string& coordinator,
                                      const std::string& id = "w0") {
    return Start("switchyard-worker",
                 {"--coordinator", coordinator, "--id", id, "--net-devices", "lo"}, id);
  }
  static ProgramResult Syctl(const std::string& coordinator, std::vector<std::string> words) {
    words.insert(words.begin(),
                 {absl::StrCat(SWITCHYARD_BIN_DIR, "/syctl"), "--target", coordinator});
    return RunProgram(words, kProgramTimeout);
  }
  void Apply(const std::string& coordinator, const std::string& checkpoint = kShippedModel,
             const std::string& name = "local") {
    const std::string file = folder_.Join(name + ".yaml");
    std::ofstream(file) << "name: " << name << "\ncheckpoint: '" << checkpoint << "'\n";
    const ProgramResult result = Syctl(coordinator, {"apply", "-f", file, "--wait"});
    EXPECT_EQ(result.code, 0) << result.err;
  }
  static auto ConnectTo(const std::string& coordinator) {
    ClientOptions options;
    options.coordinator = coordinator;
    options.net_devices = "lo";
    return Client::Connect(options);
  }
  template <typename Condition>
  static bool WaitUntil(Condition met, Duration timeout = kProgramTimeout) {
    const TimePoint end = SteadyClock().Now() + timeout;
    while (!met() && SteadyClock().Now() < end) std::this_thread::yield();
    return met();
  }
  // The value of one series, -1 if there is none.
  static double Value(const std::string& system, const std::string& series) {
    const std::string text = HttpRequest(system, "/metrics").body;
    const std::size_t at = text.find(absl::StrCat("\n", series, " "));
    if (at == std::string::npos) return -1;
    double value = -1;
    const std::size_t begin = at + series.size() + 2;
    EXPECT_TRUE(absl::SimpleAtod(text.substr(begin, text.find('\n', begin) - begin), &value));
    return value;
  }

  const TempDir folder_;
};

}  // namespace switchyard::testing
