// Converts plans, configs, capabilities and manifests between core and the wire.
//
// Encode accepts every valid value, and Decode restores exactly that value; plans are hashed, so a
// difference would break their hash. Decode only checks the form (enums, lengths, ranges of
// numbers); ValidatePlan checks whether a plan is consistent.
// Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/capability.h"
#include "core/control_messages.h"
#include "core/plan.h"
#include "core/weight_manifest.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/dispatch.pb.h"
#include "switchyard/v1/model.pb.h"
#include "switchyard/v1/placement.pb.h"

namespace switchyard {

// Helpers for digests, keys, signatures and durations in other messages.
void EncodeDigest(const Sha256Digest& in, std::string* out);
void EncodeBytes32(const std::array<std::uint8_t, 32>& in, std::string* out);
void EncodeTime(Duration in, google::protobuf::Duration* out);

// Sizes of a model's layers.
void Encode(const MoeShape& in, v1::MoeShape* out);
void Decode(Decoder& at, const v1::MoeShape& in, MoeShape* out);

// One entry of the manifest of a checkpoint.
void Encode(const TensorHash& in, v1::TensorHash* out);
void Decode(Decoder& at, const v1::TensorHash& in, TensorHash* out);

// Reported by a worker when it registers.
void Encode(const CapabilitySet& in, v1::CapabilitySet* out);
void Decode(Decoder& at, const v1::CapabilitySet& in, CapabilitySet* out);

// How the rows of one layer travel. A trail of any length is accepted.
void Encode(const DispatchConfig& in, v1::DispatchConfig* out);
void Decode(Decoder& at, const v1::DispatchConfig& in, DispatchConfig* out);

// Slots and worker indices are not compared with the plan; ValidatePlan does that.
void Encode(const LayerPlacement& in, v1::LayerPlacement* out);
void Decode(Decoder& at, const v1::LayerPlacement& in, LayerPlacement* out);

void Encode(const PlanWorker& in, v1::PlanWorker* out);
void Decode(Decoder& at, const v1::PlanWorker& in, PlanWorker* out);

void Encode(const ResidentEpoch& in, v1::ResidentEpoch* out);
void Decode(Decoder& at, const v1::ResidentEpoch& in, ResidentEpoch* out);

// The order of workers is part of the plan: it is the order of summation.
void Encode(const Plan& in, v1::Plan* out);
void Decode(Decoder& at, const v1::Plan& in, Plan* out);

}  // namespace switchyard
