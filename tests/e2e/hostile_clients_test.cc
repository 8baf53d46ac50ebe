// Clients that send what no program of ours sends, on every port and to every service at once: the
// workers and the coordinator live, their memory stays bounded, and sessions of others get the
// answers that they got before, to the bit.
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/session.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_server.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "tests/e2e/batch.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/listening_ports.h"
#include "worker/transport/descriptor.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::PortsOf;
using testing::Processes;
using testing::RandomMessages;
using testing::RunStep;
using testing::StepLoad;

constexpr Duration kHostile = std::chrono::seconds(12);
constexpr Duration kCall = std::chrono::milliseconds(500);
// What attachments hold while they live is counted, up to gigabytes, and so is gRPC's share. This
// is for what stays when the clients have gone: a worker's heap keeps up to 256 MiB that was freed
// (services/bin/worker_program.cc), which six rounds of this filled and did not pass.
constexpr std::int64_t kGrowthMax = std::int64_t{256 + 64} << 20;
constexpr Duration kSettled = std::chrono::seconds(5);
constexpr Duration kSettledLate = std::chrono::seconds(20);

// "VmRSS:    1234 kB".
std::int64_t ResidentBytes(pid_t process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/status"));
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == "VmRSS:" && file >> kib) return kib << 10;
  }
  return 0;
}

// The least within a while: what the last calls held is given back then. Beside other work that
// takes longer, so it goes on until `most` or less is left, for at most kSettledLate.
std::int64_t SettledBytes(pid_t process, std::int64_t most) {
  const TimePoint begin = SteadyClock().Now();
  std::int64_t least = ResidentBytes(process);
  while (SteadyClock().Now() < begin + (least <= most ? kSettled : kSettledLate)) {
    ::poll(nullptr, 0, 50);
    least = std::min(least, ResidentBytes(process));
  }
  return least;
}

// A step that fails when its answer is not the first one.
class SameAnswer {
 public:
  SameAnswer(MoeSession* session, std::uint64_t seed) : session_(session), batch_(4, seed) {}
  absl::Status Run() {
    std::fill(batch_.y.begin(), batch_.y.end(), -1.0F);
    SY_RETURN_IF_ERROR(RunStep(*session_, batch_, 0));
    if (first_.empty()) first_ = batch_.y;
    return batch_.y == first_ ? absl::OkStatus() : absl::DataLossError("another answer");
  }

 private:
  MoeSession* session_;
  Batch batch_;
  std::vector<float> first_;
};

// What one attacker knows: its own random numbers and the addresses.
class Attacker {
 public:
  Attacker(std::uint64_t seed, std::string coordinator, std::string worker)
      : random_(seed), coordinator_(std::move(coordinator)), worker_(std::move(worker)) {}

  // Each call is one attack, over within a second.
  void Register() {
    auto stub = v1::WorkerControlService::NewStub(Channel(coordinator_));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kCall));
    const auto stream = stub->Session(&context);
    v1::SessionRequest request = ToProto(random_.FromWorker());
    // Of a worker that lives; both are public.
    if (request.has_register_()) Impersonate(request.mutable_register_());
    for (int i = 0; i < 20 && stream->Write(Spoiled(request)); ++i) {
      request = ToProto(random_.FromWorker());
    }
    context.TryCancel();
    stream->Finish();
  }
  void Attach() {
    auto stub = v1::ExpertService::NewStub(Channel(worker_));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kCall));
    const auto stream = stub->Attach(&context);
    AttachRequest request = random_.Attach();
    // Half of them with a grant that is true, so that only the rings are wrong.
    if (random_.rng().Below(2) == 0) UseGrant(&request);
    stream->Write(Spoiled(ToProto(AttachMessage(request))));
    v1::AttachResponse answer;
    if (stream->Read(&answer)) stream->Write(Spoiled(ToProto(AttachMessage(random_.Attach()))));
    context.TryCancel();
    stream->Finish();
  }
  void Forward() {
    auto stub = v1::ExpertService::NewStub(Channel(worker_));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kCall));
    const auto stream = stub->Forward(&context);
    v1::ForwardRequest open;
    open.mutable_open();
    stream->Write(random_.rng().Below(3) == 0 ? Spoiled(open) : open);
    for (int i = 0; i < 4; ++i) {
      v1::ForwardRequest request;
      v1::ForwardStep* step = request.mutable_step();
      step->set_step(random_.rng().Below(4));
      step->set_layer(static_cast<std::uint32_t>(random_.rng().Below(6)));
      step->set_tokens(static_cast<std::uint32_t>(random_.rng().Next()));
      step->set_x(random_.Bytes(4096));
      step->set_ids(random_.Bytes(64));
      step->set_weights(random_.Bytes(64));
      if (!stream->Write(Spoiled(request))) break;
    }
    context.TryCancel();
    stream->Finish();
  }
  void AskWorker() {
    auto stub = v1::ExpertService::NewStub(Channel(worker_));
    v1::IdentifyRequest identify;
    identify.set_open_test_ports(true);
    v1::IdentifyResponse identity;
    Call([&](auto* context) { stub->Identify(context, identify, &identity); });
    v1::DialPeerRequest dial;
    dial.set_worker_id(random_.Text());
    dial.set_incarnation(random_.Text());
    dial.set_endpoint(random_.rng().Below(2) == 0 ? random_.Text() : "127.0.0.1:1");
    v1::DialPeerResponse reach;
    Call([&](auto* context) { stub->DialPeer(context, dial, &reach); });
    v1::GetStatusRequest ask;
    ask.set_session_id(random_.Text());
    v1::GetStatusResponse status;
    Call([&](auto* context) { stub->GetStatus(context, ask, &status); });
  }
  void AskCoordinator() {
    auto stub = v1::CoordinatorService::NewStub(Channel(coordinator_));
    v1::OpenSessionResponse grant;
    const v1::OpenSessionRequest order = Spoiled(ToProto(random_.Order()));
    Call([&](auto* context) { stub->OpenSession(context, order, &grant); });
    grpc::ClientContext watching;
    watching.set_deadline(GrpcDeadline(kCall));
    const auto watch = stub->WatchPlan(&watching, Spoiled(ToProto(random_.Watch())));
    watching.TryCancel();
    watch->Finish();
    v1::CloseSessionResponse closed;
    v1::CloseSessionRequest close;
    close.set_session_id(random_.Text());
    Call([&](auto* context) { stub->CloseSession(context, close, &closed); });
  }
  // Bytes that are no protocol, and connections that say nothing.
  void Garbage(const std::vector<std::uint16_t>& ports) {
    std::vector<Descriptor> silent;
    for (const std::uint16_t port : ports) {
      for (int i = 0; i < 4; ++i) {
        Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        // Not the workers' own address, which UCX has to let in.
        sockaddr_in from = Loopback("127.0.0.2", 0);
        sockaddr_in to = Loopback("127.0.0.1", port);
        ::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from));
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
        const std::string bytes = random_.Bytes(65536);
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (i % 2 == 0) silent.push_back(std::move(socket));
      }
    }
    std::this_thread::yield();
  }

 private:
  static sockaddr_in Loopback(const char* host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &address.sin_addr);
    return address;
  }
  static std::shared_ptr<grpc::Channel> Channel(const std::string& endpoint) {
    return MakeGrpcChannel(endpoint, kStepMessageBytesMax);
  }
  template <typename F>
  static void Call(F call) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kCall));
    call(&context);
  }
  void Impersonate(v1::Register* message) {
    auto stub = v1::CoordinatorService::NewStub(Channel(coordinator_));
    v1::ListWorkersResponse workers;
    Call([&](auto* context) { stub->ListWorkers(context, {}, &workers); });
    if (workers.workers().empty()) return;
    const v1::Worker& victim = workers.workers(0);
    message->set_worker_id(victim.id());
    message->set_incarnation(victim.incarnation());
    message->set_endpoint(victim.endpoint());
    *message->mutable_capabilities() = victim.capabilities();
  }
  void UseGrant(AttachRequest* request) {
    auto stub = v1::CoordinatorService::NewStub(Channel(coordinator_));
    v1::OpenSessionResponse response;
    Call([&](auto* context) {
      stub->OpenSession(context, ToProto(OpenSessionRequest{}), &response);
    });
    const auto grant = FromProto(response);
    if (!grant.ok()) return;
    request->session = grant->session;
    request->cookie = grant->cookie;
    request->deployment = grant->plan.deployment;
    request->phase = grant->request.phase;
    request->epoch = grant->plan.epoch;
    request->hash = grant->hash;
    request->max_tokens = grant->request.max_tokens;
    request->signature = grant->signature;
    request->reply_ring.slots = static_cast<std::uint32_t>(1 + random_.rng().Below(64));
    request->reply_ring.slot_bytes = std::uint32_t{1} << random_.rng().Below(27);
  }
  // A message of which some bytes differ, as far as it still is one.
  template <typename Message>
  Message Spoiled(const Message& message) {
    std::string bytes = message.SerializeAsString();
    for (std::uint64_t i = random_.rng().Below(4); i > 0 && !bytes.empty(); --i) {
      bytes[random_.rng().Below(bytes.size())] = static_cast<char>(random_.rng().Next());
    }
    Message spoiled;
    return spoiled.ParseFromString(bytes) ? spoiled : message;
  }

  RandomMessages random_;
  const std::string coordinator_;
  const std::string worker_;
};

class HostileClientsTest : public Processes {
 protected:
  // Attacks of each kind from a thread of its own until `over`. Returns how many there were.
  int AttackUntil(TimePoint over) {
    std::atomic<int> attacks{0};
    std::vector<std::thread> threads;
    const auto attack = [&](std::function<void(Attacker&)> one) {
      const auto seed = static_cast<std::uint64_t>(threads.size());
      threads.emplace_back([this, over, seed, &attacks, one = std::move(one)] {
        Attacker attacker(seed, deployment_->coordinator(), deployment_->worker_address(seed % 2));
        for (; SteadyClock().Now() < over; ++attacks) one(attacker);
      });
    };
    std::vector<std::uint16_t> ports;
    for (ChildProcess* process : All()) {
      const auto of = PortsOf(process->pid());
      ports.insert(ports.end(), of.begin(), of.end());
    }
    attack([](Attacker& by) { by.Register(); });
    attack([](Attacker& by) { by.Attach(); });
    attack([](Attacker& by) { by.Attach(); });
    attack([](Attacker& by) { by.Forward(); });
    attack([](Attacker& by) { by.AskWorker(); });
    attack([](Attacker& by) { by.AskCoordinator(); });
    attack([&](Attacker& by) { by.Garbage(ports); });
    for (std::thread& thread : threads) thread.join();
    return attacks;
  }
  std::vector<ChildProcess*> All() {
    return {&deployment_->coordinator_process(), &deployment_->worker_process(0),
            &deployment_->worker_process(1)};
  }
};

TEST_F(HostileClientsTest, EndNobodyAndChangeNoAnswer) {
  Deploy(2);
  ASSERT_NE(deployment_, nullptr);
  OpenSessionRequest order;
  order.phase = Phase::kDecode;
  order.step_deadline = std::chrono::seconds(20);
  SY_ASSERT_OK_AND_ASSIGN(const auto mapped_client, Connect("shm"));
  SY_ASSERT_OK_AND_ASSIGN(const auto mapped,
                          mapped_client->OpenWhenReady(order, testing::kReadyTimeout));
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway_client, Connect("gateway"));
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway,
                          gateway_client->OpenWhenReady(order, testing::kReadyTimeout));
  SameAnswer first(mapped.get(), 1);
  SameAnswer second(gateway.get(), 2);
  SY_ASSERT_OK(first.Run());
  SY_ASSERT_OK(second.Run());
  StepLoad steps([&] { return first.Run(); });
  StepLoad gateway_steps([&] { return second.Run(); });
  // Once, so that pools of threads and connections are as large as they get.
  AttackUntil(SteadyClock().Now() + kHostile / 3);
  std::vector<std::int64_t> before;
  for (ChildProcess* process : All()) {
    before.push_back(SettledBytes(process->pid(), std::numeric_limits<std::int64_t>::max()));
  }

  const int attacks = AttackUntil(SteadyClock().Now() + kHostile);

  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_TRUE(All()[i]->running()) << "process " << i;
    const std::int64_t grown = SettledBytes(All()[i]->pid(), before[i] + kGrowthMax) - before[i];
    std::printf("process %zu: %lld MiB, %lld more after %d attacks\n", i,
                static_cast<long long>(before[i] >> 20), static_cast<long long>(grown >> 20),
                attacks);
    EXPECT_LE(grown, kGrowthMax) << "process " << i;
  }
  steps.Stop();
  gateway_steps.Stop();
  EXPECT_EQ(steps.failed(), 0) << steps.first_error();
  EXPECT_EQ(gateway_steps.failed(), 0) << gateway_steps.first_error();
  SY_ASSERT_OK_AND_ASSIGN(const auto another, Connect("shm"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, another->Open(order));
  SY_EXPECT_OK(SameAnswer(session.get(), 3).Run());
}

}  // namespace
}  // namespace switchyard
