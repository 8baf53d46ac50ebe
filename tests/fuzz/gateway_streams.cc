// What callers write to a gateway, through a real gRPC server and the code that serves it. Behind
// the source is no worker: each valid step is answered at once.
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/format/bf16.h"
#include "services/channels/grpc_channels.h"
#include "services/convert/step.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "services/worker/forward_stream.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"
#include "tests/testing/fake_runner.h"
#include "worker/source/step_validation.h"

namespace switchyard::fuzz {
namespace {

constexpr MoeShape kShape{.hidden = 24, .intermediate = 10, .experts = 6, .top_k = 3};
// Of one input's stream, in which nothing takes time.
constexpr Duration kStreamMax = std::chrono::seconds(4);
constexpr std::size_t kMemoryBytes = 1U << 20;
constexpr float kAnswer = 3;
// A bit of the first Message::what: the input opens its session itself, or does not.
constexpr std::uint8_t kOwnOpen = 1;

absl::StatusOr<SessionGrant> Grant(const OpenSessionRequest& request) {
  SessionGrant grant;
  grant.session = {1, 2};
  grant.request = request;
  grant.plan.shape = kShape;
  return grant;
}

absl::Status Refuse(const StepRequest& request) {
  return ValidateStep(request, {.shape = kShape, .strict = true});
}

// Writes all of y, so that a sanitizer sees whether it fits.
absl::Status Answer(const SessionGrant& grant, const StepRequest& request) {
  const auto values = static_cast<std::int64_t>(request.tokens) * kShape.hidden;
  for (std::int64_t i = 0; i < values; ++i) {
    if (grant.request.y_dtype == OutputDtype::kF32) {
      static_cast<float*>(request.y)[i] = kAnswer;
    } else {
      static_cast<Bf16*>(request.y)[i] = FloatToBf16(kAnswer);
    }
  }
  return absl::OkStatus();
}

class Gateway final : private v1::ExpertService::CallbackService {
 public:
  Gateway() {
    options_.worker_id = "w0";
    options_.credits = 3;
    options_.memory = std::make_shared<StepMemory>(kMemoryBytes);
    SourceOptions source;
    source.coordinator = &coordinator_;
    source.clock = &clock_;
    source.make_runner =
        [this](SessionGrant grant,
               const std::function<void()>& wake) -> absl::StatusOr<std::unique_ptr<StepRunner>> {
      return std::make_unique<testing::FakeRunner>(&steps_, std::move(grant), wake, &Refuse);
    };
    sources_ = std::make_unique<SourcePool>(Source::Create(std::move(source)), nullptr);
    GrpcServerOptions grpc;
    grpc.message_bytes_max = kStepMessageBytesMax;
    auto started = GrpcServer::Start(grpc, {this});
    Check(started.ok(), "the server starts");
    server_ = *std::move(started);
    stub_ = v1::ExpertService::NewStub(MakeGrpcChannel(server_->endpoint(), kStepMessageBytesMax));
  }
  v1::ExpertService::Stub& stub() { return *stub_; }
  [[nodiscard]] std::size_t memory_used() const { return options_.memory->used(); }

 private:
  grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* Forward(
      grpc::CallbackServerContext* context) override {
    return ServeForward({context}, sources_.get(), &threads_, &options_);
  }

  testing::GrantingChannel coordinator_{&Grant};
  testing::FakeSteps steps_{&Answer};
  SteadyClock clock_;
  std::unique_ptr<SourcePool> sources_;
  ThreadPool threads_{2};
  GatewayOptions options_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::ExpertService::Stub> stub_;
};

// Lives as long as the process, as gRPC's threads do.
Gateway& TheGateway() {
  static auto* const gateway = new Gateway;
  return *gateway;
}

// One stream, written and then read to its end.
class Caller {
 public:
  Caller() {
    context_.set_deadline(GrpcDeadline(kStreamMax));
    stream_ = TheGateway().stub().Forward(&context_);
  }

  // False once the gateway has ended the stream.
  bool Write(const v1::ForwardRequest& request) {
    if (request.has_open() && !std::exchange(opened_, true)) {
      f32_ = request.open().y_dtype() != v1::OUTPUT_DTYPE_BF16;
    }
    if (request.has_step()) ++waits_[request.step().step()];
    return stream_->Write(request);
  }
  void Finish() {
    stream_->WritesDone();
    bool first = true;
    for (v1::ForwardResponse response; stream_->Read(&response); first = false) {
      Check(response.has_opened() == first, "`opened` comes first, and once");
      if (response.has_result()) Take(response.result());
    }
    const grpc::Status ended = stream_->Finish();
    Check(ended.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED, "a stream ends");
    if (!ended.ok()) return CheckRefusal(StatusFromGrpc(ended));
    for (const auto& [step, count] : waits_) Check(count == 0, "every step is answered");
  }

 private:
  static void CheckRefusal(const absl::Status& status) {
    Check(ReasonOf(status) != Reason::kUnspecified, "a refusal has its reason");
    Check(ReasonOf(status) != Reason::kInternal, "a caller's message is never this side's bug");
  }
  void Take(const v1::ForwardResult& result) {
    Check(waits_[result.step()]-- > 0, "every step is answered once");
    if (result.has_error()) return CheckRefusal(StatusFromProto(result.error()));
    const std::size_t value_bytes = f32_ ? sizeof(float) : sizeof(Bf16);
    Check(result.y().size() % (kShape.hidden * value_bytes) == 0, "y has whole rows");
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ForwardRequest, v1::ForwardResponse>> stream_;
  bool opened_ = false;
  bool f32_ = true;
  std::map<std::uint64_t, int> waits_;  // answers that are due, by step
};

}  // namespace

void FuzzForwardStream(absl::string_view input) {
  Caller caller;
  Messages messages(input);
  bool first = true;
  for (Message message; messages.Next(&message); first = false) {
    if (first && (message.what & kOwnOpen) == 0) {
      v1::ForwardRequest open;
      open.mutable_open();
      if (!caller.Write(open)) break;
    }
    v1::ForwardRequest request;
    if (!request.ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size()))) {
      continue;
    }
    if (!caller.Write(request)) break;
  }
  caller.Finish();
}

}  // namespace switchyard::fuzz
