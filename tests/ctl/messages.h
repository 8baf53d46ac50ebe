// Responses of a coordinator with one small deployment: two workers, layers 0, 1 and 4.
#pragma once

#include <string>

#include "core/base/error.h"
#include "services/convert/plan.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::testing {

inline Plan SmallPlan() {
  Plan plan;
  plan.deployment = "local";
  plan.model = "toy";
  plan.epoch = Epoch{3};
  plan.shape = {.hidden = 64, .intermediate = 32, .experts = 4, .top_k = 2};
  plan.workers = {{"w0", {1, 1}, "127.0.0.1:7001", DeviceKind::kCpu, "amx_bf16"},
                  {"w1", {1, 2}, "127.0.0.1:7002", DeviceKind::kCpu, "scalar"}};
  for (const int layer : {0, 1, 4}) {
    LayerPlacement placement{LayerId{layer}, {}};
    for (int e = 0; e < 4; ++e) {
      placement.experts.push_back({ExpertId{e}, WorkerOrdinal{e / 2}, SlotId{e % 2}});
    }
    if (layer == 4) placement.experts.push_back({ExpertId{0}, WorkerOrdinal{1}, SlotId{2}});
    plan.layers.push_back(placement);
    DispatchConfig config;
    config.layer = LayerId{layer};
    config.phase = Phase::kPrefill;
    config.trail = {"mode normal: prefill steps may have many tokens",
                    "wire dtype bf16: unquantized"};
    plan.configs.push_back(config);
    config.phase = Phase::kDecode;
    config.mode = DispatchMode::kLowLatency;
    config.max_tokens_per_step = 512;
    config.trail = {"mode low_latency: decode steps have few tokens"};
    plan.configs.push_back(config);
  }
  return plan;
}

inline v1::GetPlanResponse PlanMessage() {
  v1::GetPlanResponse out;
  Encode(SmallPlan(), out.mutable_plan());
  EncodeDigest(Sha256("a plan"), out.mutable_plan_hash());
  return out;
}

inline v1::ExplainLayerResponse LayerMessage(std::uint32_t layer) {
  const v1::Plan plan = PlanMessage().plan();
  v1::ExplainLayerResponse out;
  out.set_epoch(plan.epoch());
  *out.mutable_workers() = plan.workers();
  for (const v1::LayerPlacement& placement : plan.layers()) {
    if (placement.layer() == layer) *out.mutable_placement() = placement;
  }
  for (const v1::DispatchConfig& config : plan.configs()) {
    if (config.layer() == layer) *out.add_configs() = config;
  }
  return out;
}

// The response for a deployment that is refused: no plan, with the reason.
inline v1::ExplainLayerResponse RefusedLayerMessage() {
  v1::ExplainLayerResponse out;
  out.set_activity("refused: it can never work");
  v1::DispatchTrace& trace = *out.add_traces();
  trace.set_layer(1);
  trace.set_phase(v1::PHASE_DECODE);
  *trace.mutable_refusal() =
      StatusToProto(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig, "no fp8"));
  trace.set_page("Refused, FAILED_PRECONDITION: no fp8\n");
  return out;
}

// The decision that made config number `config` of LayerMessage(0), with `page`.
inline v1::DispatchTrace TraceMessage(int config, const std::string& page) {
  const v1::DispatchConfig of = LayerMessage(0).configs(config);
  v1::DispatchTrace out;
  out.set_phase(of.phase());
  *out.mutable_edge() = of.edge();
  out.set_mode(of.mode());
  out.mutable_outcome()->set_wire_format("bf16");
  out.set_page(page);
  return out;
}

// The decision for layer 0 in decode, from the CPU to `worker`.
inline v1::HypotheticalDispatch HypotheticalMessage(const std::string& worker) {
  v1::HypotheticalDispatch out;
  out.set_source_profile("cpu");
  out.set_worker_profile(worker);
  out.set_phase(v1::PHASE_DECODE);
  *out.mutable_config() = LayerMessage(0).configs(1);
  return out;
}

inline v1::Worker WorkerMessage(const std::string& id) {
  v1::Worker out;
  out.set_id(id);
  out.set_incarnation(std::string(32, 'a'));
  out.set_endpoint("127.0.0.1:7001");
  out.set_state(v1::WORKER_STATE_LIVE);
  out.set_release("0.1.0");
  v1::CapabilitySet& can = *out.mutable_capabilities();
  can.set_device(v1::DEVICE_KIND_CPU);
  can.set_device_profile("cpu");
  can.set_kernel_family("amx_bf16");
  can.add_wire_dtypes(v1::DISPATCH_DTYPE_BF16);
  can.add_schemes(v1::QUANT_SCHEME_NONE);
  can.add_transports("shm");
  can.add_transports("tcp");
  can.set_transport_library("UCX 1.13.1");
  can.set_max_top_k(32);
  can.set_weight_bytes_max(std::uint64_t{3} << 29);
  can.mutable_gdn()->set_verify_kernel(v1::GDN_VERIFY_KERNEL_TRITON);
  can.mutable_gdn()->set_grid_2d(true);
  out.mutable_lease_left()->set_seconds(1);
  out.mutable_lease_left()->set_nanos(540'000'000);
  out.set_progress(17);
  out.set_experts(6);
  out.set_protocol_version(2);
  v1::ResidentEpoch& resident = *out.add_resident();
  resident.set_deployment("local");
  resident.set_epoch(3);
  EncodeDigest(Sha256("a plan"), resident.mutable_plan_hash());
  resident.set_committed(true);
  return out;
}

inline v1::Deployment DeploymentMessage() {
  v1::Deployment out;
  v1::DeploymentSpec& spec = *out.mutable_spec();
  spec.set_name("local");
  spec.set_model("toy");
  spec.set_checkpoint("/models/toy");
  v1::PhaseSpec& phase = *spec.add_phases();
  phase.set_phase(v1::PHASE_DECODE);
  phase.set_mode(v1::DISPATCH_MODE_LOW_LATENCY);
  spec.add_phases()->set_phase(v1::PHASE_PREFILL);
  spec.set_min_workers(2);
  spec.mutable_join_timeout()->set_seconds(20);
  spec.set_max_tokens_per_step(512);
  Encode(SmallPlan().shape, out.mutable_shape());
  for (const std::uint32_t layer : {0, 1, 4}) out.add_layers(layer);
  EncodeDigest(Sha256("a manifest"), out.mutable_manifest_hash());
  out.set_state(v1::DEPLOYMENT_STATE_SERVING);
  out.set_committed_epoch(3);
  EncodeDigest(Sha256("a plan"), out.mutable_plan_hash());
  out.set_activity("serving epoch 3");
  out.set_sessions(2);
  return out;
}

// Three revisions: the second one is refused, the third goes back to the first and serves.
inline v1::ListRevisionsResponse RevisionsMessage() {
  v1::ListRevisionsResponse out;
  out.set_deployment("local");
  for (int i = 1; i <= 3; ++i) {
    v1::Revision& one = *out.add_revisions();
    one.set_number(static_cast<std::uint64_t>(i));
    *one.mutable_spec() = DeploymentMessage().spec();
    one.set_manifest_hash(DeploymentMessage().manifest_hash());
    one.set_state(v1::REVISION_STATE_SERVING);
  }
  out.mutable_revisions(0)->set_state(v1::REVISION_STATE_FORMER);
  out.mutable_revisions(0)->set_epoch(1);
  v1::Revision& refused = *out.mutable_revisions(1);
  refused.set_state(v1::REVISION_STATE_REFUSED);
  refused.set_refusal("layer 1 takes no fp8");
  refused.mutable_spec()->set_model("other");
  refused.mutable_applied()->set_seconds(1'700'000'000);
  refused.mutable_applied()->set_nanos(250'000'000);
  out.mutable_revisions(2)->set_epoch(3);
  out.mutable_revisions(2)->set_rollback_to(1);
  return out;
}

inline v1::Event EventMessage(std::uint64_t number, const std::string& name) {
  v1::Event out;
  out.set_number(number);
  out.mutable_last()->set_seconds(static_cast<std::int64_t>(1'700'000'000 + number));
  out.set_count(2);
  out.set_warning(name == "w0");
  out.set_object(name == "w0" ? v1::EVENT_OBJECT_WORKER : v1::EVENT_OBJECT_DEPLOYMENT);
  out.set_name(name);
  out.set_reason(name == "w0" ? "Left" : "EpochServing");
  out.set_message("message " + std::to_string(number));
  return out;
}

// A worker that has loaded 34 of 48 experts of epoch 4.
inline v1::Staging StagingMessage(const std::string& worker) {
  v1::Staging out;
  out.set_worker(worker);
  out.set_step(v1::STAGING_STEP_LOADING);
  v1::StagingReport& progress = *out.mutable_progress();
  progress.set_deployment("local");
  progress.set_epoch(4);
  progress.set_experts_done(34);
  progress.set_experts(48);
  progress.set_bytes_done(std::uint64_t{34} << 25);
  progress.set_bytes(std::uint64_t{48} << 25);
  out.set_bytes_per_second(std::uint64_t{412} << 20);
  out.mutable_left()->set_seconds(1);
  out.mutable_left()->set_nanos(87'000'000);
  return out;
}

inline v1::Model ModelMessage() {
  v1::Model out;
  out.set_name("toy");
  out.set_checkpoint("/models/toy");
  Encode(SmallPlan().shape, out.mutable_shape());
  for (const std::uint32_t layer : {0, 1, 4}) out.add_layers(layer);
  EncodeDigest(Sha256("a manifest"), out.mutable_manifest_hash());
  out.add_deployments("local");
  return out;
}

// DATA_LOSS, WEIGHT_HASH.
inline v1::Status ProblemMessage() {
  return StatusToProto(MakeError(absl::StatusCode::kDataLoss, Reason::kWeightHash,
                                 "worker w1: tensor x is not that of the manifest",
                                 {{"worker", "w1"}}));
}

}  // namespace switchyard::testing
