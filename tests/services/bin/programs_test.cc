// switchyard-coordinator and switchyard-worker as processes: how they start, refuse to, and end.
#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "harness/child_process.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "tests/testing/http_client.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::ReadBytes;

constexpr Duration kLong = std::chrono::seconds(30);
constexpr Duration kProbe = std::chrono::seconds(1);  // a kubelet's default

class ProgramsTest : public ::testing::Test {
 protected:
  absl::StatusOr<ChildProcess> Start(const std::string& program, std::vector<std::string> flags) {
    flags.insert(flags.begin(), absl::StrCat(SY_BIN_DIR, "/", program));
    const bool has_store = std::find(flags.begin(), flags.end(), "--store") != flags.end();
    if (program == "switchyard-coordinator" && !has_store) {
      flags.insert(flags.end(), {"--store", "memory"});
    }
    // Any free port: tests run beside each other.
    const bool listens = std::find(flags.begin(), flags.end(), "--listen") != flags.end();
    if (!listens) flags.insert(flags.end(), {"--listen", "127.0.0.1:0"});
    flags.insert(flags.end(), {"--log-format", "text"});
    return ChildProcess::Spawn(flags, dir_.Join("log"));
  }
  // Exit code of a program that ends by itself; its words are in Log().
  int Run(const std::string& program, std::vector<std::string> flags) {
    auto process = Start(program, std::move(flags));
    EXPECT_THAT(process, testing::IsOk());
    return process.ok() ? ExitCode(*process) : -1;
  }
  static int ExitCode(ChildProcess& process) {
    const auto status = process.Wait(kLong);
    EXPECT_THAT(status, testing::IsOk());
    if (status.ok() && WIFSIGNALED(*status)) ADD_FAILURE() << "signal " << WTERMSIG(*status);
    return status.ok() && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
  }
  // What syctl prints as JSON.
  std::string Syctl(const std::string& target, const std::string& words) {
    auto process =
        ChildProcess::Spawn({"/bin/sh", "-c",
                             absl::StrCat("exec ", SY_BIN_DIR, "/syctl --target ", target, " ",
                                          words, " -o json >", dir_.Join("out"))},
                            dir_.Join("syctl"));
    EXPECT_THAT(process, testing::IsOk());
    if (process.ok()) {
      EXPECT_EQ(ExitCode(*process), 0) << ReadBytes(dir_.Join("syctl"));
    }
    return ReadBytes(dir_.Join("out"));
  }
  [[nodiscard]] std::string Log() const { return ReadBytes(dir_.Join("log")); }

  const testing::TempDir dir_;
};

TEST_F(ProgramsTest, ACoordinatorSaysWhereItListensAndExitsWithZeroOnSigterm) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator, Start("switchyard-coordinator", {}));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, coordinator.WaitForLine("ready ", kLong));
  EXPECT_THAT(address, ::testing::StartsWith("127.0.0.1:"));

  coordinator.Signal(SIGTERM);

  EXPECT_EQ(ExitCode(coordinator), 0) << Log();
}

// Without --store, plans outlive the coordinator: in a file of its working directory.
TEST_F(ProgramsTest, ARestartedCoordinatorKnowsItsDeploymentsUnlessTheyWereInMemory) {
  const std::string file = dir_.Write(
      "local.yaml",
      "name: local\ncheckpoint: 'synthetic:hidden=64,intermediate=32,experts=16,top_k=4'\n");
  const auto start = [&](const std::string& flags) {
    return ChildProcess::Spawn(
        {"/bin/sh", "-c",
         absl::StrCat("cd ", dir_.path(), " && exec ", SY_BIN_DIR,
                      "/switchyard-coordinator --listen 127.0.0.1:0 ", flags)},
        dir_.Join("log"));
  };
  const auto deployments_of = [&](const std::string& flags) {
    auto coordinator = start(flags);
    SY_EXPECT_OK(coordinator);
    const auto address = coordinator->WaitForLine("ready ", kLong);
    SY_EXPECT_OK(address);
    const std::string deployments = Syctl(*address, "get deployments");
    coordinator->Signal(SIGTERM);
    EXPECT_EQ(ExitCode(*coordinator), 0) << Log();
    return deployments;
  };

  EXPECT_THAT(deployments_of("--deployment " + file), HasSubstr("local"));
  EXPECT_THAT(Log(), HasSubstr("plans are stored in " + dir_.Join("switchyard.sqlite")));
  EXPECT_THAT(deployments_of(""), HasSubstr("local"));
  EXPECT_THAT(deployments_of("--store memory"), ::testing::Not(HasSubstr("local")));
  EXPECT_THAT(Log(), HasSubstr("plans are stored in memory: a restart forgets deployments"));
}

// Connections of strangers to one port, held until they are destroyed.
class Flood {
 public:
  Flood(const std::string& address, int connections) {
    for (int i = 0; i < connections; ++i) sockets_.push_back(Dial(address));
  }
  ~Flood() {
    for (const int socket : sockets_) ::close(socket);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  static int Dial(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_GE(socket, 0);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return socket;
  }

 private:
  std::vector<int> sockets_;
};

// Whether the port answers a client of HTTP/2 within `limit`.
bool Speaks(const std::string& address, Duration limit) {
  const SteadyClock clock;
  const TimePoint end = clock.Now() + limit;
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  bool answered = false;
  while (!answered && clock.Now() < end) {
    const int socket = Flood::Dial(address);
    [[maybe_unused]] const auto sent = ::send(socket, hello.data(), hello.size(), MSG_NOSIGNAL);
    pollfd readable{socket, POLLIN, 0};
    char frame[9];
    answered = ::poll(&readable, 1, 100) == 1 && ::recv(socket, frame, 9, 0) == 9 && frame[3] == 4;
    ::close(socket);
  }
  return answered;
}

// With few descriptors, so that it runs out of them: gRPC's own listener then stops for good.
TEST_F(ProgramsTest, AFloodOfConnectionsDeafensNeitherCoordinatorNorWorker) {
  const auto start = [&](const std::string& program, const std::string& flags) {
    return ChildProcess::Spawn({"/bin/sh", "-c",
                                absl::StrCat("ulimit -n 128 && exec ", SY_BIN_DIR, "/", program,
                                             " --listen 127.0.0.1:0", flags)},
                               dir_.Join(program));
  };
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator,
                          start("switchyard-coordinator", " --store memory --system-port 0"));
  SY_ASSERT_OK_AND_ASSIGN(const std::string probe, coordinator.WaitForLine("system ", kLong));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, coordinator.WaitForLine("ready ", kLong));
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess worker,
                          start("switchyard-worker", absl::StrCat(" --system-port 0 --coordinator ",
                                                                  address, " --id w0")));
  SY_ASSERT_OK_AND_ASSIGN(const std::string data_probe, worker.WaitForLine("system ", kLong));
  SY_ASSERT_OK_AND_ASSIGN(const std::string data, worker.WaitForLine("ready ", kLong));

  // Until the coordinator has dialed it, which takes descriptors of both.
  const TimePoint until = SteadyClock().Now() + kLong;
  while (Syctl(address, "get workers").find("\"live\"") == std::string::npos) {
    ASSERT_LT(SteadyClock().Now(), until);
  }

  for (const auto& [port, system] : {std::pair(address, probe), std::pair(data, data_probe)}) {
    {
      const Flood flood(port, 400);
      EXPECT_FALSE(Speaks(port, std::chrono::milliseconds(200))) << "descriptors are left";
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(testing::HttpRequest(system, "/livez", "GET", kProbe).code, 200) << i;
      }
    }
    EXPECT_TRUE(Speaks(port, std::chrono::seconds(1))) << port << "\n" << Log();
  }

  EXPECT_THAT(Syctl(address, "get workers"), HasSubstr("\"live\""));
  EXPECT_THAT(ReadBytes(dir_.Join("switchyard-coordinator")), HasSubstr("connections refused"));
  worker.Signal(SIGTERM);
  EXPECT_EQ(ExitCode(worker), 0);
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(ExitCode(coordinator), 0);
}

TEST_F(ProgramsTest, AWorkerDrainsAndExitsWithZeroOnSigterm) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator, Start("switchyard-coordinator", {}));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, coordinator.WaitForLine("ready ", kLong));
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess worker,
                          Start("switchyard-worker", {"--coordinator", address, "--id", "w0"}));
  SY_ASSERT_OK(worker.WaitForLine("ready ", kLong));

  worker.Signal(SIGTERM);

  EXPECT_EQ(ExitCode(worker), 0) << Log();
}

// A coordinator that takes no worker.
class RefusingCoordinator final : public v1::WorkerControlService::Service {
 public:
  grpc::Status Session(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* /*stream*/) override {
    return StatusToGrpc(MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                                  "worker \"w0\": incarnation is empty"));
  }
};

TEST_F(ProgramsTest, AWorkerThatIsRefusedEndsWithTheReason) {
  RefusingCoordinator service;
  SY_ASSERT_OK_AND_ASSIGN(const auto coordinator, GrpcServer::Start({}, {&service}));

  EXPECT_EQ(Run("switchyard-worker",
                {"--coordinator", coordinator->endpoint(), "--id", "w0", "--net-devices", "lo"}),
            1);

  EXPECT_THAT(Log(), HasSubstr("incarnation is empty"));
}

// As the coordinator would refuse it, and it could not say where the id is from.
TEST_F(ProgramsTest, AnIdThatIsNoNameIsAWrongCommandLine) {
  EXPECT_EQ(Run("switchyard-worker", {"--id", "no good name"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--id: \"no good name\" is no name"));
}

TEST_F(ProgramsTest, APortInUseIsNamed) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess first, Start("switchyard-coordinator", {}));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, first.WaitForLine("ready ", kLong));

  EXPECT_EQ(Run("switchyard-coordinator", {"--listen", address}), 1);
  EXPECT_THAT(Log(), HasSubstr("ADDRESS_IN_USE"));
  EXPECT_THAT(Log(), HasSubstr(address.substr(address.rfind(':') + 1)));
  EXPECT_EQ(Run("switchyard-worker", {"--listen", address, "--coordinator", address, "--id", "w0",
                                      "--net-devices", "lo"}),
            1);
}

TEST_F(ProgramsTest, ASystemPortIsSaidBeforeTheReadyLineAndNamedWhenInUse) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess first,
                          Start("switchyard-coordinator", {"--system-port", "0"}));
  SY_ASSERT_OK_AND_ASSIGN(const std::string system, first.WaitForLine("system ", kLong));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, first.WaitForLine("ready ", kLong));
  EXPECT_THAT(system, ::testing::StartsWith("127.0.0.1:"));
  EXPECT_NE(system, address);
  const std::string port = system.substr(system.rfind(':') + 1);

  EXPECT_EQ(Run("switchyard-coordinator", {"--system-port", port}), 1);
  EXPECT_THAT(Log(), HasSubstr("ADDRESS_IN_USE"));
  EXPECT_THAT(Log(), HasSubstr(system));
  EXPECT_EQ(Run("switchyard-worker", {"--system-port", port, "--coordinator", address, "--id", "w0",
                                      "--net-devices", "lo"}),
            1);
  EXPECT_THAT(Log(), HasSubstr(system));
  EXPECT_NE(Run("switchyard-coordinator", {"--system-port", "65536"}), 0);
  EXPECT_NE(Run("switchyard-coordinator", {"--system-port", "-1"}), 0);
}

// Exit code 2: another start would end in the same way.
TEST_F(ProgramsTest, BadOptionsAreRefusedBeforeAnythingStarts) {
  const auto worker = [this](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--coordinator", "127.0.0.1:1", "--id", "w0"});
    return Run("switchyard-worker", flags);
  };
  EXPECT_EQ(Run("switchyard-coordinator", {"--listen", "nowhere"}), 2);
  EXPECT_THAT(Log(), HasSubstr("\"nowhere\" is not \"host:port\""));
  EXPECT_EQ(Run("switchyard-coordinator", {"--store", "punchcards"}), 2);
  EXPECT_THAT(Log(), HasSubstr("punchcards"));
  EXPECT_EQ(Run("switchyard-coordinator", {"--log-level", "loud"}), 2);
  EXPECT_EQ(worker({"--device", "cpu:kernel_family=abacus"}), 2);
  EXPECT_THAT(Log(), HasSubstr("abacus"));
  EXPECT_EQ(worker({"--listen", "0.0.0.0:0"}), 2);
  EXPECT_THAT(Log(), HasSubstr("has the wildcard 0.0.0.0, which peers cannot dial"));
  EXPECT_THAT(Log(), HasSubstr("set --advertise"));
  for (const char* dtypes : {"fp8,int8", "bf16,fp9"}) {
    EXPECT_EQ(worker({"--wire-dtypes", dtypes}), 2) << dtypes << "\n" << Log();
  }
  EXPECT_EQ(worker({"--net-devices", "eth97"}), 2);
  EXPECT_THAT(Log(), HasSubstr("this machine has no network device \"eth97\"; it has "));
  EXPECT_EQ(worker({"--weight-bytes-max", "-5"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--weight-bytes-max: \"-5\" is out of range"));
  EXPECT_EQ(Run("switchyard-worker", {}), 2);
  EXPECT_THAT(Log(), HasSubstr("--id is required"));
  EXPECT_EQ(worker({"--device", "slide-rule"}), 2);
  EXPECT_THAT(Log(), HasSubstr("no device 'slide-rule' in this build; it has: cpu"));
}

// The same mistakes have the same answer in all programs.
TEST_F(ProgramsTest, EveryProgramAnswersVersionHelpAndMistakesAlike) {
  const std::string out = dir_.Join("out");
  const auto run = [&](const std::string& program, const std::string& words) {
    const std::string command =
        absl::StrCat("exec ", SY_BIN_DIR, "/", program, " ", words, " >", out);
    auto process = ChildProcess::Spawn({"/bin/sh", "-c", command}, dir_.Join("log"));
    EXPECT_THAT(process, testing::IsOk());
    return process.ok() ? ExitCode(*process) : -1;
  };
  for (const char* program : {"switchyard-coordinator", "switchyard-worker", "switchyard-quantize",
                              "switchyard-eval", "verify", "generate", "syctl"}) {
    EXPECT_EQ(run(program, "--version"), 0) << program;
    EXPECT_THAT(ReadBytes(out), ::testing::MatchesRegex(absl::StrCat(program, " [0-9.]+\n")));
    EXPECT_EQ(run(program, "--help"), 0) << program;
    EXPECT_THAT(ReadBytes(out), HasSubstr("--version")) << program;
    EXPECT_EQ(run(program, "-v"), 2) << program;
    EXPECT_THAT(Log(), HasSubstr(absl::StrCat(
                           program, ": unknown option -v; did you mean --version?\nnext: '",
                           program, " --help' shows the usage\n")));
    EXPECT_EQ(ReadBytes(out), "") << program;
    EXPECT_EQ(run(program, "--xyzzy=3"), 2) << program;
    EXPECT_THAT(Log(), HasSubstr("unknown option --xyzzy")) << program;
  }
}

TEST_F(ProgramsTest, AConfigurationFileIsUsedAndItsMistakesHaveALine) {
  const std::string good = dir_.Write("good.yaml",
                                      "network:\n  listen: 127.0.0.1:0\n"
                                      "store:\n  location: sqlite:plans.sqlite\n");
  const std::string bad = dir_.Write("bad.yaml", "pool:\n  id: w0\n  leave_timout: 5s\n");
  SY_ASSERT_OK_AND_ASSIGN(
      ChildProcess coordinator,
      ChildProcess::Spawn({absl::StrCat(SY_BIN_DIR, "/switchyard-coordinator"), "--config", good},
                          dir_.Join("coordinator")));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, coordinator.WaitForLine("ready ", kLong));
  EXPECT_THAT(ReadBytes(dir_.Join("coordinator")),
              HasSubstr("plans are stored in " + dir_.Join("plans.sqlite")));

  EXPECT_EQ(Run("switchyard-worker", {"--config", bad, "--coordinator", address}), 2);

  EXPECT_THAT(Log(), HasSubstr(bad + ":3: pool.leave_timout: no such key; did you mean "
                                     "\"leave_timeout\"? (known: coordinator, id, name, "
                                     "leave_timeout, leave_alone_timeout)"));
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(ExitCode(coordinator), 0);
}

// Deployments come from a pipe as well as from a file.
TEST_F(ProgramsTest, SyctlAppliesSeveralDeploymentsFromStandardInput) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator, Start("switchyard-coordinator", {}));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, coordinator.WaitForLine("ready ", kLong));
  const std::string model = "checkpoint: 'synthetic:hidden=64,intermediate=32,experts=16,top_k=4'";
  const auto apply = [&](const std::string& documents) {
    const std::string file = dir_.Write("in.yaml", documents);
    auto process =
        ChildProcess::Spawn({"/bin/sh", "-c",
                             absl::StrCat("cat ", file, " | ", SY_BIN_DIR, "/syctl --target ",
                                          address, " apply -f - >", dir_.Join("out"))},
                            dir_.Join("syctl"));
    EXPECT_THAT(process, testing::IsOk());
    return process.ok() ? ExitCode(*process) : -1;
  };

  EXPECT_EQ(apply(absl::StrCat("name: a\n", model, "\n---\nname: b\n", model, "\n---\n")), 0)
      << ReadBytes(dir_.Join("syctl"));
  const std::string deployments = Syctl(address, "get deployments");
  EXPECT_THAT(deployments, HasSubstr("\"a\""));
  EXPECT_THAT(deployments, HasSubstr("\"b\""));
  // Nothing of a file with a mistake is applied.
  EXPECT_EQ(apply(absl::StrCat("name: c\n", model, "\n---\nname: c\n", model, "\n")), 2);
  EXPECT_THAT(ReadBytes(dir_.Join("syctl")), HasSubstr("stdin:4: name: \"c\" is the name of the "
                                                       "deployment at line 1 already"));
  EXPECT_EQ(apply("name: d\ncheckpoint: models/toy\n"), 2);
  EXPECT_THAT(
      ReadBytes(dir_.Join("syctl")),
      HasSubstr("stdin:2: checkpoint: \"models/toy\" is relative, and standard input has no "
                "folder"));
  EXPECT_THAT(Syctl(address, "get deployments"), ::testing::Not(HasSubstr("\"c\"")));
}

// The default port is one for all programs, so none of them needs to be told.
TEST_F(ProgramsTest, PrintConfigShowsTheOneDefaultPort) {
  const std::string out = dir_.Join("out");
  for (const char* words : {"switchyard-coordinator", "switchyard-worker --id w0"}) {
    auto process = ChildProcess::Spawn(
        {"/bin/sh", "-c", absl::StrCat("exec ", SY_BIN_DIR, "/", words, " --print-config >", out)},
        dir_.Join("log"));
    SY_ASSERT_OK(process);
    EXPECT_EQ(ExitCode(*process), 0) << Log();
    EXPECT_THAT(ReadBytes(out), HasSubstr("127.0.0.1:7700")) << words;
  }
}

// SIGUSR1 shows everything, SIGUSR2 what was configured.
TEST_F(ProgramsTest, SignalsChangeWhatIsLogged) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator,
                          Start("switchyard-coordinator", {"--log-level", "error"}));
  SY_ASSERT_OK(coordinator.WaitForLine("ready ", kLong));
  EXPECT_EQ(Log(), "");
  const auto wait_for = [this](const std::string& text) {
    const TimePoint until = SteadyClock().Now() + kLong;
    while (Log().find(text) == std::string::npos && SteadyClock().Now() < until) {
      std::this_thread::yield();
    }
    return Log();
  };

  coordinator.Signal(SIGUSR1);
  EXPECT_THAT(wait_for("level is debug"), HasSubstr("the log's level is debug now"));
  coordinator.Signal(SIGUSR2);
  coordinator.Signal(SIGTERM);

  EXPECT_EQ(ExitCode(coordinator), 0) << Log();
}

// A worker whose GPU cannot be had ends with the reason; it does not compute on the CPU instead.
// Builds without CUDA say so, machines without a driver name versions, and no machine has so many
// GPUs.
TEST_F(ProgramsTest, AWorkerWithoutItsGpuEndsWithTheReason) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator, Start("switchyard-coordinator", {}));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address, coordinator.WaitForLine("ready ", kLong));

  EXPECT_EQ(
      Run("switchyard-worker", {"--coordinator", address, "--id", "w0", "--device", "cuda:4000"}),
      1);

  EXPECT_THAT(Log(),
              ::testing::AnyOf(HasSubstr("this build has no CUDA device"),
                               HasSubstr("no usable GPU: "), HasSubstr("so none of index 4000")));
  EXPECT_THAT(Log(), HasSubstr("[code=FAILED_PRECONDITION reason=UNSUPPORTED]"));
  EXPECT_TRUE(coordinator.running());
  EXPECT_THAT(Syctl(address, "get workers"), ::testing::Not(HasSubstr("w0")));
}

TEST_F(ProgramsTest, ACoordinatorPlacesByTheNamedPolicyOrListsThem) {
  EXPECT_EQ(Run("switchyard-coordinator", {"--placement", "astrology"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--placement: \"astrology\" is not one of sticky or contiguous"));

  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator,
                          Start("switchyard-coordinator", {"--placement", "contiguous"}));
  SY_EXPECT_OK(coordinator.WaitForLine("ready ", kLong));
}

// R10, R11: the drafts' names of the option and unknown dtypes, before anything starts.
TEST_F(ProgramsTest, ACoordinatorRefusesMisspelledDtypeOptionsWithTheRightName) {
  for (const char* const name : {"--dispather-output-dtype", "--deepep-dispatch-output-dtype"}) {
    EXPECT_EQ(Run("switchyard-coordinator", {name, "bf16"}), 2);
    EXPECT_THAT(Log(), HasSubstr(absl::StrCat(name,
                                              " is misspelled; write "
                                              "--dispatcher-output-dtype")));
  }
  EXPECT_EQ(Run("switchyard-coordinator", {"--dispatcher-output-dtype", "fp9"}), 2);
  EXPECT_THAT(Log(), HasSubstr("(known: auto, bf16, fp8, int8, nvfp4)"));
}

// R11
TEST_F(ProgramsTest, ACoordinatorTakesTheOlderSpellingWithOneWarning) {
  SY_ASSERT_OK_AND_ASSIGN(
      ChildProcess coordinator,
      Start("switchyard-coordinator", {"--deepep-dispatcher-output-dtype", "bf16"}));
  SY_ASSERT_OK(coordinator.WaitForLine("ready ", kLong));

  const std::string log = Log();
  const std::string text =
      "--deepep-dispatcher-output-dtype is deprecated; write "
      "--dispatcher-output-dtype instead";
  EXPECT_THAT(log, HasSubstr(text));
  EXPECT_EQ(log.find(text), log.rfind(text)) << log;
}

TEST_F(ProgramsTest, ADeploymentFileIsReadStrictly) {
  const std::string file = dir_.Write("bad.yaml", "name: local\ncheckpont: /nowhere\n");

  EXPECT_EQ(Run("switchyard-coordinator", {"--deployment", file}), 2);

  EXPECT_THAT(Log(), HasSubstr("did you mean \"checkpoint\"?"));
}

}  // namespace
}  // namespace switchyard
