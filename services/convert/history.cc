#include "services/convert/history.h"

#include "services/convert/admin.h"
#include "services/convert/plan.h"
#include "services/convert/session.h"

namespace switchyard {

template <>
struct WireEnum<RevisionState> {
  using Proto = v1::RevisionState;
  static constexpr RevisionState kLast = RevisionState::kUnused;
  static constexpr int kProtoMax = v1::RevisionState_MAX;
};

template <>
struct WireEnum<JournalObject> {
  using Proto = v1::EventObject;
  static constexpr JournalObject kLast = JournalObject::kWorker;
  static constexpr int kProtoMax = v1::EventObject_MAX;
};

void EncodeTime(WallTime in, google::protobuf::Timestamp* out) {
  const std::int64_t ms = in.time_since_epoch().count();
  out->set_seconds(ms / 1000);
  out->set_nanos(static_cast<std::int32_t>(ms % 1000) * 1'000'000);
}

void Encode(const Revision& in, const DeploymentView& deployment, v1::Revision* out) {
  out->set_number(in.number);
  Encode(in.spec, out->mutable_spec());
  Encode(in.spec.coordinator_defaults, out->mutable_coordinator_defaults());
  EncodeDigest(in.facts->manifest.Hash(), out->mutable_manifest_hash());
  if (in.applied != WallTime()) EncodeTime(in.applied, out->mutable_applied());
  out->set_rollback_to(in.rollback_to);
  out->set_state(EnumToProto(StateOf(in, deployment)));
  out->set_refusal(RefusalOf(in, deployment));
  out->set_epoch(in.served.value);
}

void Encode(const JournalEntry& in, v1::Event* out) {
  out->set_number(in.number);
  EncodeTime(in.first, out->mutable_first());
  EncodeTime(in.last, out->mutable_last());
  out->set_count(static_cast<std::uint32_t>(in.count));
  out->set_warning(in.level >= LogLevel::kWarn);
  out->set_object(EnumToProto(in.object));
  out->set_name(in.name);
  out->set_reason(in.reason);
  out->set_message(in.message);
}

void Encode(const SessionView& in, v1::Session* out) {
  out->set_name(in.name);
  out->set_deployment(in.deployment);
  out->set_phase(EnumToProto(in.phase));
  if (in.mode) out->set_mode(EnumToProto(*in.mode));
  if (in.source) out->set_source(EnumToProto(*in.source));
  out->set_peer(in.peer);
  out->set_opened_epoch(in.opened.value);
  out->set_epoch(in.epoch.value);
  EncodeTime(in.age, out->mutable_age());
  if (in.binding) out->set_binding(EnumToProto(*in.binding));
  out->set_binding_reason(in.binding_reason);
  if (in.ranks == 0) return;
  Encode(in.group, out->mutable_group());
  out->set_ranks(static_cast<std::uint32_t>(in.ranks));
}

}  // namespace switchyard
