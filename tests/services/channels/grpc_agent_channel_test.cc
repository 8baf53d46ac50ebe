#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "services/channels/grpc_channels.h"
#include "services/convert/control.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "tests/services/sink_log.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::Brief;
using testing::SinkLog;

using ControlServerStream = grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>;

// A coordinator that does with each stream what the test says.
class FakeCoordinator final : public v1::WorkerControlService::Service {
 public:
  using Script = std::function<grpc::Status(ControlServerStream*)>;
  explicit FakeCoordinator(Script script) : script_(std::move(script)) {
    absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start({}, {this});
    EXPECT_THAT(server, testing::IsOk());
    server_ = *std::move(server);
  }
  ~FakeCoordinator() override { server_->Shutdown(Duration{}); }

  grpc::Status Session(grpc::ServerContext* /*context*/, ControlServerStream* stream) override {
    stream->SendInitialMetadata();
    return script_(stream);
  }
  GrpcServer& server() { return *server_; }
  [[nodiscard]] std::string endpoint() const { return server_->endpoint(); }

 private:
  const Script script_;
  std::unique_ptr<GrpcServer> server_;
};

grpc::Status ReadToTheEnd(ControlServerStream* stream) {
  v1::SessionRequest request;
  while (stream->Read(&request)) {
  }
  return grpc::Status::OK;
}

class LoggingSink final : public AgentStreamSink {
 public:
  explicit LoggingSink(SinkLog* log) : log_(log) {}
  void OnUp() override { log_->Add("up"); }
  void OnMessage(CoordinatorMessage message) override {
    if (const auto* commit = std::get_if<Commit>(&message)) {
      log_->Add(absl::StrCat("commit ", commit->epoch.value));
    } else {
      log_->Add(absl::StrCat("message ", message.index()));
    }
  }
  void OnDown(const absl::Status& why) override { log_->Add("down " + Brief(why)); }

 private:
  SinkLog* const log_;
};

TEST(GrpcAgentChannelTest, MessagesGoBothWaysInOrder) {
  std::vector<std::uint64_t> progress;
  FakeCoordinator coordinator([&progress](ControlServerStream* stream) {
    v1::SessionRequest request;
    for (int i = 0; i < 50 && stream->Read(&request); ++i) {
      progress.push_back(request.heartbeat().progress());
      stream->Write(ToProto(CoordinatorMessage(Commit{"d", Epoch{progress.back() + 1000}, {}})));
    }
    return grpc::Status::OK;
  });
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());

  const auto stream = channel->Open(&sink);
  for (std::uint64_t i = 0; i < 50; ++i) stream->Send(Heartbeat{i});

  ASSERT_TRUE(log.WaitForLast("down"));
  std::vector<std::string> expected{"up"};
  for (std::uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(progress.at(i), i);
    expected.push_back(absl::StrCat("commit ", i + 1000));
  }
  expected.push_back("down OK REASON_UNSPECIFIED");
  EXPECT_EQ(log.lines(), expected);
}

TEST(GrpcAgentChannelTest, UpComesBeforeAnythingWasSent) {
  FakeCoordinator coordinator(ReadToTheEnd);
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());

  const auto stream = channel->Open(&sink);

  EXPECT_TRUE(log.WaitForLast("up"));
}

TEST(GrpcAgentChannelTest, AnEndpointThatNobodyServesIsCoordinatorLost) {
  std::string endpoint;
  {
    FakeCoordinator gone(ReadToTheEnd);
    endpoint = gone.endpoint();
  }
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(endpoint);

  const auto stream = channel->Open(&sink);

  ASSERT_TRUE(log.WaitFor(1));
  EXPECT_EQ(log.lines(), std::vector<std::string>{"down UNAVAILABLE COORDINATOR_LOST"});
}

TEST(GrpcAgentChannelTest, TheCoordinatorsReasonArrives) {
  FakeCoordinator coordinator([](ControlServerStream* /*stream*/) {
    return StatusToGrpc(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kLeaseHeld,
                                  "worker w0 is alive elsewhere"));
  });
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());

  const auto stream = channel->Open(&sink);

  EXPECT_TRUE(log.WaitForLast("down FAILED_PRECONDITION LEASE_HELD"));
}

TEST(GrpcAgentChannelTest, AKilledCoordinatorIsNoticedAndAReturningOneIsReached) {
  auto first = std::make_unique<FakeCoordinator>(ReadToTheEnd);
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(first->endpoint());
  GrpcServerOptions same;
  same.port = first->server().port();
  auto stream = channel->Open(&sink);
  ASSERT_TRUE(log.WaitForLast("up"));

  first.reset();

  ASSERT_TRUE(log.WaitForLast("down UNAVAILABLE COORDINATOR_LOST"));
  stream->Send(Heartbeat{1});  // Lost without a word.
  class Service final : public v1::WorkerControlService::Service {
    grpc::Status Session(grpc::ServerContext* /*context*/, ControlServerStream* server) override {
      server->SendInitialMetadata();
      return ReadToTheEnd(server);
    }
  } service;
  SY_ASSERT_OK_AND_ASSIGN(const auto second, GrpcServer::Start(same, {&service}));
  bool up = false;
  for (int attempt = 0; attempt < 100 && !up; ++attempt) {
    const std::size_t before = log.lines().size();
    stream = channel->Open(&sink);
    ASSERT_TRUE(log.WaitFor(before + 1));
    up = log.lines().back() == "up";
  }
  EXPECT_TRUE(up);
  stream.reset();
}

TEST(GrpcAgentChannelTest, AMessageOverTheLimitEndsTheStream) {
  FakeCoordinator coordinator(ReadToTheEnd);
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());
  const auto stream = channel->Open(&sink);

  stream->Send(Register{.worker_id = std::string(kControlMessageBytesMax, 'w'),
                        .incarnation = {},
                        .endpoint = "",
                        .capabilities = {},
                        .resident = {}});

  EXPECT_TRUE(log.WaitForLast("down RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE"));
}

TEST(GrpcAgentChannelTest, AMessageThatIsNoneEndsTheStream) {
  FakeCoordinator coordinator([](ControlServerStream* stream) {
    stream->Write(v1::SessionResponse());
    return ReadToTheEnd(stream);
  });
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());

  const auto stream = channel->Open(&sink);

  EXPECT_TRUE(log.WaitForLast("down INVALID_ARGUMENT BAD_REQUEST"));
}

TEST(GrpcAgentChannelTest, ACoordinatorThatDoesNotReadLosesTheStream) {
  std::atomic<bool> over = false;
  FakeCoordinator coordinator([&over](ControlServerStream* stream) {
    over.wait(false);
    return ReadToTheEnd(stream);
  });
  SinkLog log;
  LoggingSink sink(&log);
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());
  const auto stream = channel->Open(&sink);
  Register large;
  large.worker_id = std::string(kSmallMessageBytesMax / 2, 'w');

  for (std::size_t i = 0; i < 1600; ++i) stream->Send(large);  // Far more than the queue holds.

  EXPECT_TRUE(log.WaitForLast("down RESOURCE_EXHAUSTED NO_CREDITS"));
  over = true;
  over.notify_all();
}

// A sink that dies with its stream and notices being called afterwards.
class MortalSink final : public AgentStreamSink {
 public:
  explicit MortalSink(std::atomic<int>* calls_after_death) : calls_(calls_after_death) {}
  ~MortalSink() override { alive_ = false; }
  void OnUp() override { Check(); }
  void OnMessage(CoordinatorMessage /*message*/) override { Check(); }
  void OnDown(const absl::Status& /*why*/) override { Check(); }

 private:
  void Check() {
    if (!alive_) ++*calls_;
  }
  std::atomic<int>* const calls_;
  std::atomic<bool> alive_ = true;
};

TEST(GrpcAgentChannelTest, NoSinkIsCalledAfterItsStreamIsGone) {
  FakeCoordinator coordinator([](ControlServerStream* stream) {
    while (stream->Write(ToProto(CoordinatorMessage(Goodbye{})))) {
    }
    return grpc::Status::OK;
  });
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());
  std::atomic<int> calls_after_death = 0;
  const std::uint64_t seed = 31;
  SeededRng rng(seed);
  for (int round = 0; round < 100; ++round) {
    alignas(MortalSink) std::byte memory[sizeof(MortalSink)];
    auto* sink = new (memory) MortalSink(&calls_after_death);
    auto stream = channel->Open(sink);
    for (std::uint64_t spins = rng.Below(200); spins > 0; --spins) {
      stream->Send(Heartbeat{spins});
    }

    stream.reset();
    sink->~MortalSink();
  }
  EXPECT_EQ(calls_after_death, 0) << "seed " << seed;
}

TEST(GrpcAgentChannelTest, AStreamMayBeDestroyedFromItsSink) {
  FakeCoordinator coordinator([](ControlServerStream* stream) {
    stream->Write(ToProto(CoordinatorMessage(Goodbye{})));
    return ReadToTheEnd(stream);
  });
  SinkLog log;
  class SelfEnding final : public AgentStreamSink {
   public:
    explicit SelfEnding(SinkLog* out) : log_(out) {}
    void OnUp() override {}
    void OnMessage(CoordinatorMessage /*message*/) override {
      const std::unique_ptr<AgentStream> ending = take_();
      log_->Add("message");
    }
    void OnDown(const absl::Status& /*why*/) override { log_->Add("down"); }
    std::function<std::unique_ptr<AgentStream>()> take_;

   private:
    SinkLog* const log_;
  };
  SelfEnding sink(&log);
  std::mutex mutex;
  std::condition_variable stored;
  std::unique_ptr<AgentStream> stream;
  sink.take_ = [&] {
    std::unique_lock lock(mutex);
    stored.wait(lock, [&] { return stream != nullptr; });
    return std::move(stream);
  };
  const auto channel = MakeGrpcAgentChannel(coordinator.endpoint());
  {
    auto opened = channel->Open(&sink);
    const std::lock_guard lock(mutex);
    stream = std::move(opened);
    stored.notify_all();
  }

  EXPECT_TRUE(log.WaitFor(1));
  coordinator.server().Shutdown(Duration{});
  EXPECT_EQ(log.lines(), std::vector<std::string>{"message"});
}

}  // namespace
}  // namespace switchyard
