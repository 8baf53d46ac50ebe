#include "services/convert/plan.h"

namespace switchyard {
namespace {

// Numbers are unsigned on the wire and signed in core, whose values are never negative. Decoding
// uses Decoder::Int, which refuses values that do not fit.
std::uint32_t Unsigned(std::int32_t value) { return static_cast<std::uint32_t>(value); }

// Decodes a list of enums; a value that this version does not know fails with its index.
template <typename Core, typename ProtoList>
void DecodeEnums(Decoder& at, const char* field, const ProtoList& in, std::vector<Core>* out) {
  using Proto = typename WireEnum<Core>::Proto;
  at.Each(field, in, out,
          [&at](int value, Core* item) { at.Enum("", static_cast<Proto>(value), item); });
}

void DecodeGdn(Decoder& at, const v1::GdnFacts& in, GdnFacts* out) {
  at.Enum("verify_kernel", in.verify_kernel(), &out->verify);
  out->grid_2d = in.grid_2d();
}

}  // namespace

void EncodeDigest(const Sha256Digest& in, std::string* out) { EncodeBytes32(in.bytes, out); }

void EncodeBytes32(const std::array<std::uint8_t, 32>& in, std::string* out) {
  out->assign(in.begin(), in.end());
}

// Zero durations are written too: a reader must be able to tell 0 from a missing value.
void EncodeTime(Duration in, google::protobuf::Duration* out) {
  constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
  out->set_seconds(in.count() / kNanosPerSecond);
  out->set_nanos(static_cast<std::int32_t>(in.count() % kNanosPerSecond));
}

void Encode(const MoeShape& in, v1::MoeShape* out) {
  out->set_hidden(Unsigned(in.hidden));
  out->set_intermediate(Unsigned(in.intermediate));
  out->set_experts(Unsigned(in.experts));
  out->set_top_k(Unsigned(in.top_k));
}

void Decode(Decoder& at, const v1::MoeShape& in, MoeShape* out) {
  at.Int("hidden", in.hidden(), &out->hidden);
  at.Int("intermediate", in.intermediate(), &out->intermediate);
  at.Int("experts", in.experts(), &out->experts);
  at.Int("top_k", in.top_k(), &out->top_k);
}

void Encode(const TensorHash& in, v1::TensorHash* out) {
  out->set_layer(Unsigned(in.layer.value));
  out->set_expert(Unsigned(in.expert.value));
  out->set_projection(EnumToProto(in.projection));
  EncodeDigest(in.sha256, out->mutable_sha256());
}

void Decode(Decoder& at, const v1::TensorHash& in, TensorHash* out) {
  at.Int("layer", in.layer(), &out->layer.value);
  at.Int("expert", in.expert(), &out->expert.value);
  at.Enum("projection", in.projection(), &out->projection);
  at.Digest("sha256", in.sha256(), &out->sha256);
}

void Encode(const CapabilitySet& in, v1::CapabilitySet* out) {
  out->set_device(EnumToProto(in.device));
  out->set_device_profile(in.device_profile);
  out->set_kernel_family(in.kernel_family);
  for (const DispatchDtype dtype : in.wire_dtypes) out->add_wire_dtypes(EnumToProto(dtype));
  for (const QuantScheme scheme : in.schemes) out->add_schemes(EnumToProto(scheme));
  for (const std::string& transport : in.transports) out->add_transports(transport);
  out->set_max_top_k(Unsigned(in.max_top_k));
  out->set_weight_bytes_max(static_cast<std::uint64_t>(in.weight_bytes_max));
  out->mutable_gdn()->set_verify_kernel(EnumToProto(in.gdn.verify));
  out->mutable_gdn()->set_grid_2d(in.gdn.grid_2d);
  out->set_transport_library(in.transport_library);
}

void Decode(Decoder& at, const v1::CapabilitySet& in, CapabilitySet* out) {
  at.Enum("device", in.device(), &out->device);
  out->device_profile = in.device_profile();
  out->kernel_family = in.kernel_family();
  DecodeEnums(at, "wire_dtypes", in.wire_dtypes(), &out->wire_dtypes);
  DecodeEnums(at, "schemes", in.schemes(), &out->schemes);
  out->transports.assign(in.transports().begin(), in.transports().end());
  at.Int("max_top_k", in.max_top_k(), &out->max_top_k);
  at.Int("weight_bytes_max", in.weight_bytes_max(), &out->weight_bytes_max);
  // A worker that sends no facts gets the defaults: what every device supports.
  if (in.has_gdn()) at.Sub("gdn", true, [&] { DecodeGdn(at, in.gdn(), &out->gdn); });
  out->transport_library = in.transport_library();
}

void Encode(const DispatchConfig& in, v1::DispatchConfig* out) {
  out->set_layer(Unsigned(in.layer.value));
  out->set_phase(EnumToProto(in.phase));
  out->mutable_edge()->set_source(EnumToProto(in.edge.source));
  out->mutable_edge()->set_worker(EnumToProto(in.edge.worker));
  out->set_mode(EnumToProto(in.mode));
  out->set_wire_dtype(EnumToProto(in.wire_dtype));
  out->set_combine_dtype(EnumToProto(in.combine_dtype));
  out->set_scheme(EnumToProto(in.scheme));
  out->set_max_tokens_per_step(Unsigned(in.max_tokens_per_step));
  for (const std::string& line : in.trail) out->add_trail(line);
  out->set_wire_scale(EnumToProto(in.wire_scale));
  out->set_global_scale(in.global_scale);
}

void Decode(Decoder& at, const v1::DispatchConfig& in, DispatchConfig* out) {
  at.Int("layer", in.layer(), &out->layer.value);
  at.Enum("phase", in.phase(), &out->phase);
  at.Sub("edge", in.has_edge(), [&] {
    at.Enum("source", in.edge().source(), &out->edge.source);
    at.Enum("worker", in.edge().worker(), &out->edge.worker);
  });
  at.Enum("mode", in.mode(), &out->mode);
  at.Enum("wire_dtype", in.wire_dtype(), &out->wire_dtype);
  at.Enum("combine_dtype", in.combine_dtype(), &out->combine_dtype);
  at.Enum("scheme", in.scheme(), &out->scheme);
  at.Int("max_tokens_per_step", in.max_tokens_per_step(), &out->max_tokens_per_step);
  out->trail.assign(in.trail().begin(), in.trail().end());
  // Both are optional on the wire: core's defaults are the formats that a sender without these
  // fields means.
  if (in.wire_scale() != v1::SCALE_KIND_UNSPECIFIED) {
    at.Enum("wire_scale", in.wire_scale(), &out->wire_scale);
  }
  if (in.global_scale() != 0) out->global_scale = in.global_scale();
}

void Encode(const LayerPlacement& in, v1::LayerPlacement* out) {
  out->set_layer(Unsigned(in.layer.value));
  for (const PhysicalExpert& expert : in.experts) {
    v1::PhysicalExpert* item = out->add_experts();
    item->set_expert(Unsigned(expert.expert.value));
    item->set_worker(Unsigned(expert.worker.value));
    item->set_slot(Unsigned(expert.slot.value));
  }
}

void Decode(Decoder& at, const v1::LayerPlacement& in, LayerPlacement* out) {
  at.Int("layer", in.layer(), &out->layer.value);
  at.Each("experts", in.experts(), &out->experts,
          [&at](const v1::PhysicalExpert& item, PhysicalExpert* expert) {
            at.Int("expert", item.expert(), &expert->expert.value);
            at.Int("worker", item.worker(), &expert->worker.value);
            at.Int("slot", item.slot(), &expert->slot.value);
          });
}

void Encode(const PlanWorker& in, v1::PlanWorker* out) {
  out->set_id(in.id);
  out->set_incarnation(ToHex(in.incarnation));
  out->set_endpoint(in.endpoint);
  out->set_device(EnumToProto(in.device));
  out->set_kernel_family(in.kernel_family);
}

void Decode(Decoder& at, const v1::PlanWorker& in, PlanWorker* out) {
  out->id = in.id();
  at.Id("incarnation", in.incarnation(), &out->incarnation);
  out->endpoint = in.endpoint();
  at.Enum("device", in.device(), &out->device);
  out->kernel_family = in.kernel_family();
}

void Encode(const ResidentEpoch& in, v1::ResidentEpoch* out) {
  out->set_deployment(in.deployment);
  out->set_epoch(in.epoch.value);
  EncodeDigest(in.hash, out->mutable_plan_hash());
  out->set_committed(in.committed);
}

void Decode(Decoder& at, const v1::ResidentEpoch& in, ResidentEpoch* out) {
  out->deployment = in.deployment();
  out->epoch.value = in.epoch();
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
  out->committed = in.committed();
}

void Encode(const Plan& in, v1::Plan* out) {
  out->set_deployment(in.deployment);
  out->set_model(in.model);
  out->set_epoch(in.epoch.value);
  Encode(in.shape, out->mutable_shape());
  EncodeDigest(in.manifest, out->mutable_manifest_hash());
  for (const PlanWorker& worker : in.workers) Encode(worker, out->add_workers());
  for (const LayerPlacement& layer : in.layers) Encode(layer, out->add_layers());
  for (const DispatchConfig& config : in.configs) Encode(config, out->add_configs());
}

void Decode(Decoder& at, const v1::Plan& in, Plan* out) {
  out->deployment = in.deployment();
  out->model = in.model();
  out->epoch.value = in.epoch();
  at.Sub("shape", in.has_shape(), [&] { Decode(at, in.shape(), &out->shape); });
  at.Digest("manifest_hash", in.manifest_hash(), &out->manifest);
  // One generic lambda: overload resolution picks the Decode of each list's message.
  const auto decode = [&at](const auto& item, auto* value) { Decode(at, item, value); };
  at.Each("workers", in.workers(), &out->workers, decode);
  at.Each("layers", in.layers(), &out->layers, decode);
  at.Each("configs", in.configs(), &out->configs, decode);
}

}  // namespace switchyard
