// A participant in its EXPERT role, put together: device, transport, expert service and agent.
//
// The process around it brings the gRPC server (or the in-process channels) and a reason to end.
// Thread-safe after construction.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/rng.h"
#include "core/trace_settings.h"
#include "core/tracing/step_tracer.h"
#include "worker/agent/agent_channel.h"
#include "worker/agent/agent_runner.h"
#include "worker/collective/expert/group_service.h"
#include "worker/device/device_backend.h"
#include "worker/expert/expert_service.h"
#include "worker/routing/own_experts.h"
#include "worker/transport/transport.h"

namespace switchyard {

// Moved into the node, which owns the transport from then on.
struct ExpertNodeOptions {
  std::string worker_id;
  std::string pool = {};     // empty: none
  std::string release = {};  // of this program, such as "0.1.0"; for people
  Incarnation incarnation;   // the transport's
  std::shared_ptr<DeviceBackend> device;
  std::unique_ptr<Transport> transport;
  std::vector<std::string> transport_names;  // advertised: "shm", "tcp" or "inproc"
  std::string ring_dir = {};                 // of the sockets of groups; as the transport's
  std::int64_t weight_bytes_max = 0;         // of all resident epochs; 0: no bound
  int load_threads = 1;                      // see StagerOptions
  // The wire dtypes to offer, of those that the device has proven; empty: all of them.
  std::vector<DispatchDtype> wire_dtypes = {};
  Duration leave_timeout = AgentOptions().leave_timeout;
  Duration leave_alone_timeout = AgentOptions().leave_alone_timeout;
  // Takes what requests of traced steps write down; null: nothing is traced.
  std::shared_ptr<StepTracer> tracer = {};
  // Called from the agent's thread when the coordinator says which steps are traced.
  std::function<void(const TraceSettings& settings)> on_tracing = {};
  // Called once, from one of the node's threads or from one that runs a step of the gateway, when
  // the device has failed for good: end the process.
  std::function<void(const absl::Status& why)> on_device_fault;
  Clock* clock = nullptr;  // these three outlive the node
  Rng* rng = nullptr;
  Logger* logger = nullptr;
};

// Owns its parts and destroys them in the reverse order of their use: agent, service, transport.
class ExpertNode {
 public:
  // Errors: kFailedPrecondition (UNSUPPORTED) for a wire dtype to offer that the device has not
  // proven; kInvalidArgument (BAD_CONFIG) when BF16 is not among those to offer, because every
  // other one falls back to it; those of MakeStream.
  static absl::StatusOr<std::unique_ptr<ExpertNode>> Create(ExpertNodeOptions options);
  // As Stop.
  ~ExpertNode();
  ExpertNode(const ExpertNode&) = delete;
  ExpertNode& operator=(const ExpertNode&) = delete;

  // Also after Stop, which ends the service's threads and keeps the object.
  [[nodiscard]] ExpertService& experts() { return *experts_; }
  // Collective sessions. Likewise.
  [[nodiscard]] GroupService& groups() { return *groups_; }
  // For sources of this process, which share this worker's ranks. It may outlive the node.
  [[nodiscard]] std::shared_ptr<RankHost> rank_host() { return groups_; }
  // For a Source of this process: its own experts without a ring. Valid until the node is
  // destroyed.
  [[nodiscard]] OwnExperts& own_experts();
  // The device's, with the transports, the memory and the wire dtypes of this worker: a device does
  // not know how rows arrive, nor how much memory the operator grants.
  [[nodiscard]] const CapabilitySet& capabilities() const { return capabilities_; }

  // Connects to the coordinator, and again whenever the stream breaks; call once. `endpoint` is
  // where sources attach; `finished` as AgentRunner's. `channel` outlives the node.
  void Join(AgentChannel* channel, const std::string& endpoint,
            std::function<void(absl::Status)> finished);
  // Tells the coordinator that this worker wants to end; `finished` follows once no plan names it.
  // Returns at once.
  void Leave();
  // The agent's state; empty before Join.
  [[nodiscard]] AgentView agent_view() const;
  // Closes the control stream, waits up to `drain` for attachments to close, ends the threads.
  // Idempotent.
  void Stop(Duration drain);

 private:
  // The agent's interface to the expert service.
  class Stager;

  explicit ExpertNode(ExpertNodeOptions options);

  // First, hence destroyed last: the parts below use its device and transport.
  ExpertNodeOptions options_;
  CapabilitySet capabilities_;
  std::unique_ptr<ExpertService> experts_;
  std::shared_ptr<GroupService> groups_;  // ranks of sources of this process hold it, too
  std::unique_ptr<Stager> stager_;
  std::unique_ptr<AgentRunner> agent_;
};

}  // namespace switchyard
