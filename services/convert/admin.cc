#include "services/convert/admin.h"

#include <algorithm>
#include <utility>

#include "core/protocol_version.h"
#include "services/convert/plan.h"
#include "services/convert/progress.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {

// These three enums only occur in views, so their rows are here and not in enums.h, which every
// converter includes.
template <>
struct WireEnum<DeploymentState> {
  using Proto = v1::DeploymentState;
  static constexpr DeploymentState kLast = DeploymentState::kRefused;
  static constexpr int kProtoMax = v1::DeploymentState_MAX;
};
template <>
struct WireEnum<WorkerState> {
  using Proto = v1::WorkerState;
  static constexpr WorkerState kLast = WorkerState::kDrained;
  static constexpr int kProtoMax = v1::WorkerState_MAX;
};
template <>
struct WireEnum<StagingStep> {
  using Proto = v1::StagingStep;
  static constexpr StagingStep kLast = StagingStep::kCommitted;
  static constexpr int kProtoMax = v1::StagingStep_MAX;
};

namespace {

// Staging and CheckpointReading have the same fields for it.
template <typename Proto>
void EncodePace(const Pace& in, Proto* out) {
  out->set_bytes_per_second(static_cast<std::uint64_t>(in.bytes_per_second));
  if (in.left) EncodeTime(*in.left, out->mutable_left());
  EncodeTime(in.still, out->mutable_still());
}

void Encode(const StagingView& in, v1::Staging* out) {
  out->set_worker(in.worker);
  out->set_step(EnumToProto(in.step));
  Encode(in.progress, out->mutable_progress());
  EncodePace(in.pace, out);
  out->set_waits_for(in.waits_for);
}

void Encode(const ReadingView& in, v1::CheckpointReading* out) {
  out->set_model(in.model);
  out->set_checkpoint(in.checkpoint);
  out->set_bytes_done(static_cast<std::uint64_t>(in.bytes_done));
  out->set_bytes(static_cast<std::uint64_t>(in.bytes));
  EncodePace(in.pace, out);
  out->set_dry_run(in.dry_run);
}

}  // namespace

// Every optional field is encoded only if it is set, so that a reader sees what the operator chose.
void Encode(const DeploymentSpec& in, v1::DeploymentSpec* out) {
  out->set_name(in.name);
  out->set_model(in.model);
  out->set_checkpoint(in.checkpoint);
  for (const PhaseSpec& phase : in.phases) {
    v1::PhaseSpec* item = out->add_phases();
    item->set_phase(EnumToProto(phase.phase));
    if (phase.mode.has_value()) item->set_mode(EnumToProto(*phase.mode));
    if (phase.dispatcher_output_dtype.has_value()) {
      item->set_dispatcher_output_dtype(EnumToProto(*phase.dispatcher_output_dtype));
    }
  }
  out->set_min_workers(static_cast<std::uint32_t>(in.min_workers));
  EncodeTime(in.join_timeout, out->mutable_join_timeout());
  EncodeTime(in.former_model_kept, out->mutable_former_model_kept());
  out->set_max_tokens_per_step(static_cast<std::uint32_t>(in.max_tokens_per_step));
  if (in.dispatcher_output_dtype.has_value()) {
    out->set_dispatcher_output_dtype(EnumToProto(*in.dispatcher_output_dtype));
  }
  out->set_moe_runner_backend(EnumToProto(in.moe_runner_backend));
  for (const std::string& pool : in.pools) out->add_pools(pool);
  for (const LayerSpec& layer : in.layers) {
    v1::LayerSpec* item = out->add_layers();
    item->set_layer(static_cast<std::uint32_t>(layer.layer.value));
    if (layer.phase.has_value()) item->set_phase(EnumToProto(*layer.phase));
    item->set_dispatcher_output_dtype(EnumToProto(layer.dispatcher_output_dtype));
  }
}

void Decode(Decoder& at, const v1::DeploymentSpec& in, DeploymentSpec* out) {
  out->name = in.name();
  out->model = in.model();
  out->checkpoint = in.checkpoint();
  at.Each("phases", in.phases(), &out->phases, [&at](const v1::PhaseSpec& item, PhaseSpec* phase) {
    at.Enum("phase", item.phase(), &phase->phase);
    at.OptionalEnum<DispatchMode>("mode", item.mode(), &phase->mode);
    at.OptionalEnum<DtypeChoice>("dispatcher_output_dtype", item.dispatcher_output_dtype(),
                                 &phase->dispatcher_output_dtype);
  });
  at.Int("min_workers", in.min_workers(), &out->min_workers);
  at.Time("join_timeout", in.join_timeout(), &out->join_timeout);
  at.Time("former_model_kept", in.former_model_kept(), &out->former_model_kept);
  at.Int("max_tokens_per_step", in.max_tokens_per_step(), &out->max_tokens_per_step);
  at.OptionalEnum<DtypeChoice>("dispatcher_output_dtype", in.dispatcher_output_dtype(),
                               &out->dispatcher_output_dtype);
  at.OptionalEnum<RunnerBackend>("moe_runner_backend", in.moe_runner_backend(),
                                 &out->moe_runner_backend);
  out->pools.assign(in.pools().begin(), in.pools().end());
  at.Each("layers", in.layers(), &out->layers, [&at](const v1::LayerSpec& item, LayerSpec* layer) {
    // Layer 0 exists, so a missing number must not be read as 0.
    if (!item.has_layer()) return at.Refuse("layer", "is missing; name one of the MoE layers");
    at.Int("layer", item.layer(), &layer->layer.value);
    at.OptionalEnum<Phase>("phase", item.phase(), &layer->phase);
    at.Enum("dispatcher_output_dtype", item.dispatcher_output_dtype(),
            &layer->dispatcher_output_dtype);
  });
}

absl::StatusOr<DeploymentSpec> FromProto(const v1::ApplyDeploymentRequest& proto) {
  Decoder at("ApplyDeploymentRequest");
  DeploymentSpec spec;
  at.Sub("deployment", proto.has_deployment(), [&] { Decode(at, proto.deployment(), &spec); });
  return at.Finish(std::move(spec));
}

void Encode(const DispatchDefaults& in, v1::DispatchDefaults* out) {
  out->set_dispatcher_output_dtype(EnumToProto(in.dispatcher_output_dtype));
  out->set_bf16_dispatch_flag(in.bf16_dispatch_flag);
  out->set_npu_normal_int8_flag(in.npu_normal_int8_flag);
}

void Encode(const ServedModel& in, v1::Model* out) {
  out->set_name(in.name);
  out->set_checkpoint(in.checkpoint);
  Encode(in.shape, out->mutable_shape());
  for (const LayerId layer : in.layers) out->add_layers(static_cast<std::uint32_t>(layer.value));
  EncodeDigest(in.manifest, out->mutable_manifest_hash());
}

void Encode(const DeploymentView& in, v1::Deployment* out) {
  Encode(in.spec, out->mutable_spec());
  // Its checkpoint is not read, so that nothing else is known.
  const bool known = in.shape.experts > 0;
  if (in.reading) Encode(*in.reading, out->mutable_reading());
  if (known) Encode(in.shape, out->mutable_shape());
  for (const LayerId layer : in.layers) out->add_layers(static_cast<std::uint32_t>(layer.value));
  const bool hashed = in.manifest != Sha256Digest{};
  if (known && hashed) EncodeDigest(in.manifest, out->mutable_manifest_hash());
  out->set_state(EnumToProto(in.state));
  // Without a committed plan, the epoch stays 0 and the hash empty.
  if (in.serving != nullptr) {
    out->set_committed_epoch(in.serving->plan.epoch.value);
    EncodeDigest(in.serving->hash, out->mutable_plan_hash());
  }
  if (in.served) Encode(*in.served, out->mutable_serving_model());
  out->set_current(in.current);
  out->set_revision(in.revision);
  out->set_serving_revision(in.served_revision);
  out->set_pending_epoch(in.pending.value);
  for (const StagingView& worker : in.staging) Encode(worker, out->add_staging());
  out->set_activity(in.activity);
  // Errors in the view are the deployment's own and keep their reason for syctl's hints.
  if (!in.problem.ok()) *out->mutable_problem() = StatusToProto(in.problem);
  if (!in.apply_failure.ok()) *out->mutable_apply_failure() = StatusToProto(in.apply_failure);
  for (const std::string& line : in.left_out) out->add_left_out(line);
  out->set_sessions(static_cast<std::uint32_t>(in.sessions));
  Encode(in.spec.coordinator_defaults, out->mutable_coordinator_defaults());
}

void Encode(const WorkerView& in, v1::Worker* out) {
  out->set_id(in.id);
  out->set_incarnation(ToHex(in.incarnation));
  out->set_endpoint(in.endpoint);
  out->set_state(EnumToProto(in.state));
  Encode(in.capabilities, out->mutable_capabilities());
  // A lease can have expired just before the view was taken; the wire has no negative durations.
  EncodeTime(std::max(in.lease_left, Duration{}), out->mutable_lease_left());
  out->set_progress(in.progress);
  out->set_experts(static_cast<std::uint32_t>(in.experts));
  for (const ResidentEpoch& resident : in.resident) Encode(resident, out->add_resident());
  for (const StagingView& epoch : in.staging) Encode(epoch, out->add_staging());
  out->set_problem(in.problem);
  out->set_pool(in.pool);
  out->set_release(in.release);
  out->set_protocol_version(kProtocolVersion);  // No other worker is a member.
}

}  // namespace switchyard
