#include "worker/source/registry/runner_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/source/collective_runner.h"
#include "worker/source/gateway/gateway_runner.h"
#include "worker/source/p2p/p2p_runner.h"
#include "worker/source/staged/staged_runner.h"

namespace switchyard {
namespace {

using MadeRunner = absl::StatusOr<std::unique_ptr<StepRunner>>;

MadeRunner NoRunner(Binding binding) {
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrCat("this source cannot run steps over the binding ", BindingName(binding),
                   "; open the session through a coordinator for "
                   "p2p, or through a gateway for gateway"),
      {{"binding", std::string(BindingName(binding))}});
}

// Memory of the streams that encode and sum: indices of 15 chunks of 1024 rows; lists of the sums
// of 16 steps (Step::kDeviceTermsMax), with as much again for what is left empty between them.
constexpr std::size_t kEncodeStagingBytes = std::size_t{1} << 20;
constexpr std::size_t kSumStagingBytes = std::size_t{8} << 20;

// Mapping rings takes time and pins them: not for sessions whose steps all pass through the host.
bool MayRunOnDevice(const DeviceBackend& tensors, const SessionGrant& grant) {
  if (grant.request.strict) return false;
  if (grant.request.max_tokens <= 0) return true;
  const MoeShape& shape = grant.plan.shape;
  const std::size_t bytes = static_cast<std::size_t>(grant.request.max_tokens) *
                            static_cast<std::size_t>(shape.top_k) *
                            static_cast<std::size_t>(shape.hidden) * sizeof(Bf16);
  return bytes >= tensors.source_bytes_min();
}

// The part that the device of the tensors has in steps over rings.
absl::Status AddTensors(const RunnerParts& parts, const std::function<void()>& wake,
                        P2pRunnerOptions* options) {
  if (parts.tensors == nullptr || !MayRunOnDevice(*parts.tensors, options->grant)) {
    return absl::OkStatus();
  }
  options->tensors = parts.tensors;
  StreamOptions stream{.work_class = WorkClass::kDecode, .on_progress = wake};
  stream.staging_bytes = kEncodeStagingBytes;
  SY_ASSIGN_OR_RETURN(options->tensor_encodes, parts.tensors->MakeStream(stream));
  stream.staging_bytes = kSumStagingBytes;
  SY_ASSIGN_OR_RETURN(options->tensor_sums, parts.tensors->MakeStream(stream));
  return absl::OkStatus();
}

MadeRunner MakeP2p(const RunnerParts& parts, SessionGrant grant, std::function<void()> wake) {
  if (parts.transport == nullptr) return NoRunner(grant.binding);
  // Rows are encoded in their slots and summed there; a runner that copies them is another one.
  const MemoryKind slots = parts.transport->slot_memory();
  if (slots == MemoryKind::kHost && !parts.device->host_access()) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("the rings of this transport are in ", MemoryKindName(slots),
                                  " memory, which this source's device does not reach; give the "
                                  "source another device"),
                     {{"binding", std::string(BindingName(grant.binding))}});
  }
  P2pRunnerOptions options;
  options.channel = parts.channel;
  options.transport = parts.transport;
  options.device = parts.device.get();
  SY_ASSIGN_OR_RETURN(options.stream, parts.device->MakeStream(
                                          {.work_class = WorkClass::kDecode, .on_progress = wake}));
  options.clock = parts.clock;
  options.rng = parts.rng;
  if (parts.traces != nullptr) options.tracer = parts.traces->MakeTracer(grant.tracing);
  options.grant = std::move(grant);
  SY_RETURN_IF_ERROR(AddTensors(parts, wake, &options));
  options.wake = std::move(wake);
  options.own_experts = parts.own_experts;
  options.own_worker_id = parts.own_worker_id;
  options.incarnation = parts.incarnation;
  options.transport_choice = parts.transport_choice;
  return std::make_unique<P2pRunner>(std::move(options));
}

MadeRunner MakeGateway(const RunnerParts& parts, SessionGrant grant, std::function<void()> wake) {
  if (parts.steps == nullptr) return NoRunner(grant.binding);
  return std::make_unique<GatewayRunner>(GatewayRunnerOptions{.steps = parts.steps,
                                                              .gateways = parts.gateways,
                                                              .request = std::move(grant.request),
                                                              .wake = std::move(wake)});
}

// Works on the tensors where they lie, unlike the others.
MadeRunner MakeCollective(const RunnerParts& parts, SessionGrant grant,
                          std::function<void()> wake) {
  if (parts.channel == nullptr) return NoRunner(grant.binding);
  CollectiveRunnerOptions options;
  options.channel = parts.channel;
  options.device = parts.tensors != nullptr ? parts.tensors : parts.device;
  options.device_name = parts.tensors_name;
  options.lane = std::make_shared<SourceLane>();
  SY_ASSIGN_OR_RETURN(
      options.lane->stream,
      options.device->MakeStream({.work_class = WorkClass::kDecode, .on_progress = wake}));
  options.host = parts.rank_host;
  options.ring_dir = parts.ring_dir;
  options.wake = std::move(wake);
  if (parts.traces != nullptr) options.tracer = parts.traces->MakeTracer(grant.tracing);
  options.source = static_cast<std::uint32_t>(parts.incarnation.low);
  options.grant = std::move(grant);
  return std::make_unique<CollectiveRunner>(std::move(options));
}

// Little passes through a stream's own memory: tensors are copied to and from pinned memory.
constexpr std::size_t kStagingBytes = std::size_t{4} << 20;

MadeRunner Make(const RunnerParts& parts, SessionGrant grant, std::function<void()> wake) {
  // A switch, not a table: the compiler then names every place that a new binding must fill.
  switch (grant.binding) {
    case Binding::kP2p:
      return MakeP2p(parts, std::move(grant), std::move(wake));
    case Binding::kGateway:
      return MakeGateway(parts, std::move(grant), std::move(wake));
    case Binding::kCollective:
      return MakeCollective(parts, std::move(grant), std::move(wake));
  }
  return NoRunner(grant.binding);
}

// Between tensors on a device and a runner that takes memory of the host.
MadeRunner MakeStaged(const RunnerParts& parts, std::unique_ptr<StepRunner> inner,
                      const std::function<void()>& wake) {
  StagedRunnerOptions options;
  options.inner = std::move(inner);
  options.device = parts.tensors.get();
  options.device_name = parts.tensors_name;
  const StreamOptions stream{
      .work_class = WorkClass::kDecode, .on_progress = wake, .staging_bytes = kStagingBytes};
  SY_ASSIGN_OR_RETURN(options.reads, parts.tensors->MakeStream(stream));
  SY_ASSIGN_OR_RETURN(options.writes, parts.tensors->MakeStream(stream));
  return std::make_unique<StagedRunner>(std::move(options));
}

}  // namespace

RunnerFactory MakeRunnerFactory(RunnerParts parts) {
  // Shared, because a std::function can be copied and the device cannot.
  return [shared = std::make_shared<const RunnerParts>(std::move(parts))](
             SessionGrant grant, std::function<void()> wake) -> MadeRunner {
    if (shared->tensors == nullptr || grant.binding == Binding::kCollective) {
      return Make(*shared, std::move(grant), std::move(wake));
    }
    SY_ASSIGN_OR_RETURN(std::unique_ptr<StepRunner> inner, Make(*shared, std::move(grant), wake));
    return MakeStaged(*shared, std::move(inner), wake);
  };
}

}  // namespace switchyard
