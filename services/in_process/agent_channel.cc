#include "services/in_process/agent_channel.h"

#include <optional>
#include <utility>

namespace switchyard {
namespace {

// Both ends of the stream are this object: the driver's sink and the agent's stream.
class InProcessAgentStream final : public AgentStream, private WorkerStreamSink {
 public:
  InProcessAgentStream(Driver* driver, AgentStreamSink* sink) : driver_(driver), sink_(sink) {
    const absl::StatusOr<StreamId> stream = driver_->OpenWorkerStream(this);
    if (!stream.ok()) {
      sink_->OnDown(stream.status());
      return;
    }
    stream_ = *stream;
    sink_->OnUp();
  }
  ~InProcessAgentStream() override {
    // After this call, the driver calls neither Send nor Close.
    if (stream_.has_value()) driver_->OnWorkerStreamClosed(*stream_);
  }

  void Send(const WorkerMessage& message) override {
    if (!stream_.has_value()) return;
    // A full queue at the coordinator ends the stream, as in gRPC; the agent reconnects.
    const absl::Status taken = driver_->OnWorkerMessage(*stream_, message);
    if (!taken.ok()) sink_->OnDown(taken);
  }

 private:
  void Send(const CoordinatorMessage& message) override { sink_->OnMessage(message); }
  void Close(const absl::Status& why) override { sink_->OnDown(why); }

  Driver* driver_;
  AgentStreamSink* sink_;
  std::optional<StreamId> stream_;
};

// The channel has no state: every stream registers itself with the driver.
class InProcessAgentChannel final : public AgentChannel {
 public:
  explicit InProcessAgentChannel(Driver* driver) : driver_(driver) {}
  std::unique_ptr<AgentStream> Open(AgentStreamSink* sink) override {
    return std::make_unique<InProcessAgentStream>(driver_, sink);
  }

 private:
  Driver* driver_;
};

}  // namespace

std::unique_ptr<AgentChannel> MakeInProcessAgentChannel(Driver* driver) {
  return std::make_unique<InProcessAgentChannel>(driver);
}

}  // namespace switchyard
