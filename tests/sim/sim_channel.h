// The control side of a simulated source: watches and attachments over streams of the simulated
// network. Sessions are opened by the node itself, since nothing may block here.
#pragma once

#include <memory>
#include <string>

#include "tests/sim/network.h"
#include "worker/source/session_channel.h"

namespace switchyard::sim {

class World;

class SimChannel final : public SessionChannel {
 public:
  SimChannel(World* world, NodeId node) : world_(world), node_(node) {}

  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& order,
                                           Duration timeout) override;
  absl::Status CloseSession(SessionId session, Duration timeout) override;
  std::unique_ptr<WatchStream> Watch(const WatchRequest& order, WatchSink* sink) override;
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& order,
                                       AttachSink* sink) override;
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override;

 private:
  World* world_;
  NodeId node_;
};

}  // namespace switchyard::sim
