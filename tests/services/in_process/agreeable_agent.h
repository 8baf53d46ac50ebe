// A worker's agent that says yes to everything, over any AgentChannel.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tests/services/sink_log.h"
#include "tests/testing/model_facts.h"
#include "worker/agent/agent_channel.h"

namespace switchyard::testing {

class AgreeableAgent final : public AgentStreamSink {
 public:
  // Dials at once. `channel` outlives the agent.
  AgreeableAgent(AgentChannel* channel, std::string id) : id_(std::move(id)) {
    std::unique_ptr<AgentStream> stream = channel->Open(this);
    const std::lock_guard<std::mutex> lock(mutex_);
    stream_ = std::move(stream);
  }
  ~AgreeableAgent() override { Hangup(); }

  void Register() {
    Say(switchyard::Register{id_, Incarnation{1, 7}, "inproc:" + id_, MakeCapabilities(), {}});
  }
  // When it has returned nothing is heard any more.
  void Hangup() {
    std::unique_ptr<AgentStream> ending;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending = std::move(stream_);
    }
  }
  // "up", "registered", "prepare 1", "commit 1", "down CODE REASON".
  SinkLog& log() { return log_; }

  void OnUp() override { log_.Add("up"); }
  void OnMessage(CoordinatorMessage message) override {
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      log_.Add(absl::StrCat("prepare ", prepare->plan.epoch.value));
      Say(PrepareAck{prepare->plan.deployment, prepare->plan.epoch, prepare->nonce, prepare->hash});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      log_.Add(absl::StrCat("commit ", commit->epoch.value));
      Say(CommitAck{commit->deployment, commit->epoch, commit->hash});
    } else if (std::holds_alternative<Registered>(message)) {
      log_.Add("registered");
    }
  }
  void OnDown(const absl::Status& why) override { log_.Add("down " + Brief(why)); }

 private:
  void Say(const WorkerMessage& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stream_ != nullptr) stream_->Send(message);
  }

  const std::string id_;
  SinkLog log_;
  std::mutex mutex_;
  std::unique_ptr<AgentStream> stream_;  // guarded by mutex_
};

}  // namespace switchyard::testing
