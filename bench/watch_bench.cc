// How long it takes until all watchers of a plan have a new one. The coordinator, its gRPC server
// and a worker's stream are real; the watchers only read bytes, since a source decodes its plan on
// a machine of its own. `spread_ms`: from the first watcher that has the plan to the last;
// `plan_kib`: its size.
//
//   watch_bench --benchmark_filter='Plan/4096'
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include <benchmark/benchmark.h>

#include "bench/measure.h"
#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/driver.h"
#include "coordinator/store/registry.h"
#include "core/base/log.h"
#include "core/rng.h"
#include "services/channels/grpc_channels.h"
#include "services/coordinator/coordinator_server.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_server.h"
#include "switchyard/v1/coordinator.grpc.pb.h"

namespace switchyard::bench {
namespace {

// As many layers and experts as Qwen3-30B-A3B, whose plan is as large as its.
constexpr const char* kModel = "synthetic:hidden=8,intermediate=4,experts=128,top_k=8,layers=48";
constexpr Duration kLong = std::chrono::seconds(120);
constexpr std::size_t kStreamsAConnection = 512;

// A worker that says yes to everything.
class YesWorker final : public AgentStreamSink {
 public:
  YesWorker(const std::string& coordinator, std::string id, std::uint64_t incarnation)
      : id_(std::move(id)),
        incarnation_{1, incarnation},
        channel_(MakeGrpcAgentChannel(coordinator)) {
    const std::lock_guard lock(mutex_);
    stream_ = channel_->Open(this);
  }
  ~YesWorker() override {
    std::unique_ptr<AgentStream> ending;
    const std::lock_guard lock(mutex_);
    ending = std::move(stream_);
  }
  void OnUp() override {
    CapabilitySet capabilities;
    capabilities.device = DeviceKind::kCpu;
    capabilities.device_profile = "cpu";
    capabilities.kernel_family = "scalar";
    capabilities.wire_dtypes = {DispatchDtype::kBf16};
    capabilities.schemes = {QuantScheme::kNone};
    capabilities.transports = {"tcp"};
    capabilities.max_top_k = 32;
    Say(Register{id_, incarnation_, absl::StrCat(id_, ":1"), capabilities, {}});
  }
  void OnMessage(CoordinatorMessage message) override {
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      Say(PrepareAck{prepare->plan.deployment, prepare->plan.epoch, prepare->nonce, prepare->hash});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      Say(CommitAck{commit->deployment, commit->epoch, commit->hash});
    } else if (const auto* retire = std::get_if<Retire>(&message)) {
      Say(RetireAck{retire->deployment, retire->epoch});
    }
  }
  void OnDown(const absl::Status& why) override { OrExit(why); }

 private:
  void Say(const WorkerMessage& message) {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Send(message);
  }

  const std::string id_;
  const Incarnation incarnation_;
  const std::unique_ptr<AgentChannel> channel_;
  std::mutex mutex_;
  std::unique_ptr<AgentStream> stream_;  // guarded by mutex_
};

// What the watchers have seen.
class Arrivals {
 public:
  void Add(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    last_ = SteadyClock().Now();
    if (count_++ == 0) first_ = last_;
    bytes_ = bytes;
    changed_.notify_all();
  }
  void Ended() {
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  // Seconds from the first to the last of `count`; ends the process if they do not come.
  double WaitFor(std::size_t count) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLong, [&] { return count_ >= count; })) {
      OrExit(absl::DeadlineExceededError(absl::StrCat(count_, " of ", count, " have the plan")));
    }
    return std::chrono::duration<double>(last_ - first_).count();
  }
  void WaitForEnds(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLong, [&] { return ended_ >= count; });
  }
  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
  std::size_t ended_ = 0;
  std::size_t bytes_ = 0;
  TimePoint first_;
  TimePoint last_;
};

// One WatchPlan whose answers stay bytes.
class Watcher final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Watcher(grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>* stub,
          const v1::WatchPlanRequest& request, Arrivals* arrivals)
      : arrivals_(arrivals) {
    bool own = false;
    grpc::SerializationTraits<v1::WatchPlanRequest>::Serialize(request, &request_, &own);
    stub->PrepareBidiStreamingCall(&context_, "/switchyard.v1.CoordinatorService/WatchPlan", {},
                                   this);
    StartWriteLast(&request_, {});
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    arrivals_->Add(response_.Length());
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& /*status*/) override { arrivals_->Ended(); }

 private:
  Arrivals* const arrivals_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

void Plan(benchmark::State& state) {
  const auto watchers = static_cast<std::size_t>(state.range(0));
  SteadyClock clock;
  SystemRng rng;
  Logger logger("bench", LogLevel::kError);
  DriverOptions options;
  options.coordinator.lease_ttl = kLong;
  options.coordinator.max_sessions = watchers;
  Driver::Parts parts;
  parts.store = OrExit(OpenStateStore("memory"));
  parts.check_model = CheckModelFacts;
  parts.load_model = LoadModelFacts;
  parts.clock = &clock;
  parts.rng = &rng;
  parts.logger = &logger;
  const auto driver = OrExit(Driver::Create(options, std::move(parts)));
  const auto server =
      OrExit(CoordinatorServer::Start({.grpc = {}, .incarnation = {7, 8}}, driver.get()));
  const std::string endpoint = server->grpc().endpoint();
  DeploymentSpec spec;
  spec.name = "bench";
  spec.checkpoint = kModel;
  driver->ApplyDeployment(spec, false, [](const auto& view) { OrExit(view.status()); });
  const auto serves = [&](std::uint64_t epoch) {
    driver->WaitForView(
        [&](const CoordinatorView& view) {
          return view.deployments.size() == 1 && view.deployments[0].serving != nullptr &&
                 view.deployments[0].serving->plan.epoch.value == epoch;
        },
        kLong);
  };
  for (auto unused : state) {
    const YesWorker first(endpoint, "w0", rng.Next());
    serves(1);
    const auto channel = MakeGrpcSessionChannel(endpoint);
    OpenSessionRequest request;
    request.deployment = "bench";
    std::vector<std::shared_ptr<grpc::Channel>> connections;
    std::vector<std::unique_ptr<grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>>>
        stubs;
    std::vector<std::unique_ptr<Watcher>> all;
    Arrivals arrivals;
    for (std::size_t i = 0; i < watchers; ++i) {
      if (i % kStreamsAConnection == 0) {
        connections.push_back(MakeGrpcChannel(endpoint, kControlMessageBytesMax));
        stubs.push_back(
            std::make_unique<grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>>(
                connections.back()));
      }
      const SessionGrant grant = OrExit(channel->OpenSession(request, kLong));
      v1::WatchPlanRequest watch;
      watch.set_session_id(ToHex(grant.session));
      watch.set_deployment("bench");
      watch.set_phase(v1::PHASE_MIXED);
      watch.set_epoch(grant.plan.epoch.value);
      watch.set_plan_hash(grant.hash.bytes.data(), grant.hash.bytes.size());
      all.push_back(std::make_unique<Watcher>(stubs.back().get(), watch, &arrivals));
    }
    const YesWorker second(endpoint, "w1", rng.Next());
    const double spread = arrivals.WaitFor(watchers);
    state.SetIterationTime(spread);
    state.counters["spread_ms"] = spread * 1e3;
    state.counters["plan_kib"] = static_cast<double>(arrivals.bytes()) / 1024;
    for (const auto& watcher : all) watcher->Cancel();
    arrivals.WaitForEnds(watchers);
  }
  driver->Shutdown(std::chrono::seconds(1));
}

BENCHMARK(Plan)->Arg(64)->Arg(1024)->Arg(4096)->Iterations(1)->UseManualTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace switchyard::bench

BENCHMARK_MAIN();
