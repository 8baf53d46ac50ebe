#include "services/convert/control.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "core/base/dial_address.h"
#include "core/base/status_macros.h"
#include "core/protocol_version.h"
#include "services/convert/decoder.h"
#include "services/convert/load.h"
#include "services/convert/plan.h"
#include "services/convert/progress.h"
#include "services/convert/protocol_version.h"
#include "services/convert/tracing.h"
#include "services/convert/work_times.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {
namespace {

// Nearly every message has a deployment and an epoch.
template <typename Core, typename Proto>
void EncodeEpoch(const Core& in, Proto* out) {
  out->set_deployment(in.deployment);
  out->set_epoch(in.epoch.value);
}
template <typename Proto, typename Core>
void DecodeEpoch(const Proto& in, Core* out) {
  out->deployment = in.deployment();
  out->epoch.value = in.epoch();
}

void EncodeKeys(const GrantKeys& in, v1::GrantKeys* out) {
  for (const GrantKey& key : in) EncodeBytes32(key.bytes, out->add_keys());
}
void DecodeKeys(Decoder& at, const v1::GrantKeys& in, GrantKeys* out) {
  at.Each("keys", in.keys(), out,
          [&at](const std::string& item, GrantKey* key) { at.Bytes32("", item, &key->bytes); });
}
void Encode(const DeploymentKeys& in, v1::GrantKeys* out) {
  out->set_deployment(in.deployment);
  EncodeKeys(in.keys, out);
}
void Decode(Decoder& at, const v1::GrantKeys& in, DeploymentKeys* out) {
  out->deployment = in.deployment();
  DecodeKeys(at, in, &out->keys);
}

void Encode(const Register& in, v1::Register* out) {
  out->set_worker_id(in.worker_id);
  out->set_incarnation(ToHex(in.incarnation));
  out->set_endpoint(in.endpoint);
  Encode(in.capabilities, out->mutable_capabilities());
  for (const ResidentEpoch& resident : in.resident) Encode(resident, out->add_resident());
  for (const DeploymentKeys& keys : in.grant_keys) Encode(keys, out->add_grant_keys());
  out->set_secret(ToHex(in.secret));
  out->set_pool(in.pool);
  out->set_checks_opener(in.checks_opener);
  out->set_release(in.release);
  out->set_protocol_version(kProtocolVersion);
}
void Decode(Decoder& at, const v1::Register& in, Register* out) {
  out->worker_id = in.worker_id();
  at.Id("incarnation", in.incarnation(), &out->incarnation);
  out->endpoint = in.endpoint();
  // One worker whose address nobody can dial would end every session's steps on its experts.
  if (const std::string why = WhyNotDialable(in.endpoint()); !why.empty()) {
    at.Refuse("endpoint", why);
  }
  at.Sub("capabilities", in.has_capabilities(),
         [&] { Decode(at, in.capabilities(), &out->capabilities); });
  at.Each("resident", in.resident(), &out->resident,
          [&at](const v1::ResidentEpoch& item, ResidentEpoch* resident) {
            Decode(at, item, resident);
          });
  at.Each("grant_keys", in.grant_keys(), &out->grant_keys,
          [&at](const v1::GrantKeys& item, DeploymentKeys* keys) { Decode(at, item, keys); });
  // Workers of an older build have none.
  if (!in.secret().empty()) at.Id("secret", in.secret(), &out->secret);
  out->checks_opener = in.checks_opener();
  out->pool = in.pool();
  out->release = in.release();
}

void Encode(const Heartbeat& in, v1::Heartbeat* out) {
  out->set_progress(in.progress);
  if (in.batch_age > Duration::zero()) EncodeTime(in.batch_age, out->mutable_batch_age());
  for (const StagingReport& report : in.staging) Encode(report, out->add_staging());
  for (const LoadReport& report : in.load) Encode(report, out->add_load());
  Encode(in.times, out->mutable_times());
}
void Decode(Decoder& at, const v1::Heartbeat& in, Heartbeat* out) {
  out->progress = in.progress();
  if (in.has_batch_age()) at.Time("batch_age", in.batch_age(), &out->batch_age);
  // Every entry becomes something that the coordinator remembers.
  if (in.staging_size() > static_cast<int>(kStagingReportsMax)) {
    return at.Refuse("staging", absl::StrCat("must have at most ", kStagingReportsMax, " entries"));
  }
  at.Each(
      "staging", in.staging(), &out->staging,
      [&at](const v1::StagingReport& item, StagingReport* report) { Decode(at, item, report); });
  if (in.load_size() > static_cast<int>(kLoadReportsMax)) {
    return at.Refuse("load", absl::StrCat("must have at most ", kLoadReportsMax, " entries"));
  }
  at.Each("load", in.load(), &out->load,
          [&at](const v1::LoadReport& item, LoadReport* report) { Decode(at, item, report); });
  Decode(at, in.times(), &out->times);
}

void Encode(const PrepareAck& in, v1::PrepareAck* out) {
  EncodeEpoch(in, out);
  out->set_nonce(in.nonce);
  EncodeDigest(in.hash, out->mutable_plan_hash());
}
void Decode(Decoder& at, const v1::PrepareAck& in, PrepareAck* out) {
  DecodeEpoch(in, out);
  out->nonce = in.nonce();
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
}

void Encode(const PrepareNack& in, v1::PrepareNack* out) {
  EncodeEpoch(in, out);
  out->set_nonce(in.nonce);
  *out->mutable_error() = StatusToProto(in.error);
}
void Decode(Decoder& at, const v1::PrepareNack& in, PrepareNack* out) {
  DecodeEpoch(in, out);
  out->nonce = in.nonce();
  at.Error("error", in.has_error(), in.error(), &out->error);
}

void Encode(const CommitAck& in, v1::CommitAck* out) {
  EncodeEpoch(in, out);
  EncodeDigest(in.hash, out->mutable_plan_hash());
}
void Decode(Decoder& at, const v1::CommitAck& in, CommitAck* out) {
  DecodeEpoch(in, out);
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
}

void Encode(const CommitNack& in, v1::CommitNack* out) {
  EncodeEpoch(in, out);
  *out->mutable_error() = StatusToProto(in.error);
}
void Decode(Decoder& at, const v1::CommitNack& in, CommitNack* out) {
  DecodeEpoch(in, out);
  at.Error("error", in.has_error(), in.error(), &out->error);
}

void Encode(const RetireAck& in, v1::RetireAck* out) { EncodeEpoch(in, out); }
void Decode(Decoder& /*at*/, const v1::RetireAck& in, RetireAck* out) { DecodeEpoch(in, out); }

void Encode(const Leave& /*in*/, v1::Leave* /*out*/) {}

void Encode(const Registered& in, v1::Registered* out) {
  EncodeTime(in.lease_ttl, out->mutable_lease_ttl());
  out->set_protocol_version(kProtocolVersion);
  if (in.tracing != TraceSettings()) Encode(in.tracing, out->mutable_tracing());
}
void Decode(Decoder& at, const v1::Registered& in, Registered* out) {
  // The empty name makes the path end at "lease_ttl", as for a field of a scalar type.
  at.Sub("lease_ttl", in.has_lease_ttl(), [&] { at.Time("", in.lease_ttl(), &out->lease_ttl); });
  if (in.has_tracing()) {
    at.Sub("tracing", true, [&] { Decode(at, in.tracing(), &out->tracing); });
  }
}

void Encode(const Prepare& in, v1::Prepare* out) {
  out->set_nonce(in.nonce);
  Encode(in.plan, out->mutable_plan());
  EncodeDigest(in.hash, out->mutable_plan_hash());
  out->set_checkpoint(in.checkpoint);
  for (const TensorHash& tensor : in.tensors) Encode(tensor, out->add_tensors());
  out->mutable_grant_keys()->set_deployment(in.plan.deployment);
  EncodeKeys(in.grant_keys, out->mutable_grant_keys());
}
void Decode(Decoder& at, const v1::Prepare& in, Prepare* out) {
  out->nonce = in.nonce();
  at.Sub("plan", in.has_plan(), [&] { Decode(at, in.plan(), &out->plan); });
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
  out->checkpoint = in.checkpoint();
  at.Each("tensors", in.tensors(), &out->tensors,
          [&at](const v1::TensorHash& item, TensorHash* tensor) { Decode(at, item, tensor); });
  at.Sub("grant_keys", in.has_grant_keys(),
         [&] { DecodeKeys(at, in.grant_keys(), &out->grant_keys); });
}

void Encode(const Commit& in, v1::Commit* out) {
  EncodeEpoch(in, out);
  EncodeDigest(in.hash, out->mutable_plan_hash());
}
void Decode(Decoder& at, const v1::Commit& in, Commit* out) {
  DecodeEpoch(in, out);
  at.Digest("plan_hash", in.plan_hash(), &out->hash);
}

void Encode(const Abort& in, v1::Abort* out) { EncodeEpoch(in, out); }
void Decode(Decoder& /*at*/, const v1::Abort& in, Abort* out) { DecodeEpoch(in, out); }

void Encode(const Retire& in, v1::Retire* out) {
  EncodeEpoch(in, out);
  EncodeTime(in.within, out->mutable_within());
}
void Decode(Decoder& at, const v1::Retire& in, Retire* out) {
  DecodeEpoch(in, out);
  at.Time("within", in.within(), &out->within);
}

void Encode(const Goodbye& /*in*/, v1::Goodbye* /*out*/) {}

// Maps each message to its member of the oneof, in the order of the .proto. A message without an
// overload does not compile.
struct RequestFields {
  v1::SessionRequest* out;
  auto* For(const Register&) { return out->mutable_register_(); }
  auto* For(const Heartbeat&) { return out->mutable_heartbeat(); }
  auto* For(const PrepareAck&) { return out->mutable_prepare_ack(); }
  auto* For(const PrepareNack&) { return out->mutable_prepare_nack(); }
  auto* For(const CommitAck&) { return out->mutable_commit_ack(); }
  auto* For(const CommitNack&) { return out->mutable_commit_nack(); }
  auto* For(const RetireAck&) { return out->mutable_retire_ack(); }
  auto* For(const Leave&) { return out->mutable_leave(); }
};
struct ResponseFields {
  v1::SessionResponse* out;
  auto* For(const Registered&) { return out->mutable_registered(); }
  auto* For(const Prepare&) { return out->mutable_prepare(); }
  auto* For(const Commit&) { return out->mutable_commit(); }
  auto* For(const Abort&) { return out->mutable_abort(); }
  auto* For(const Retire&) { return out->mutable_retire(); }
  auto* For(const Goodbye&) { return out->mutable_goodbye(); }
};

// Each message is decoded below its member's name, which makes error paths such as
// "SessionRequest.register.resident[2].plan_hash".
template <typename Core, typename Proto>
Core DecodeMember(Decoder& at, const char* field, const Proto& in) {
  Core out;
  at.Sub(field, true, [&] { Decode(at, in, &out); });
  return out;
}

WorkerMessage DecodeRequest(Decoder& at, const v1::SessionRequest& in) {
  switch (in.message_case()) {
    case v1::SessionRequest::kRegister:
      return DecodeMember<Register>(at, "register", in.register_());
    case v1::SessionRequest::kHeartbeat:
      return DecodeMember<Heartbeat>(at, "heartbeat", in.heartbeat());
    case v1::SessionRequest::kPrepareAck:
      return DecodeMember<PrepareAck>(at, "prepare_ack", in.prepare_ack());
    case v1::SessionRequest::kPrepareNack:
      return DecodeMember<PrepareNack>(at, "prepare_nack", in.prepare_nack());
    case v1::SessionRequest::kCommitAck:
      return DecodeMember<CommitAck>(at, "commit_ack", in.commit_ack());
    case v1::SessionRequest::kCommitNack:
      return DecodeMember<CommitNack>(at, "commit_nack", in.commit_nack());
    case v1::SessionRequest::kRetireAck:
      return DecodeMember<RetireAck>(at, "retire_ack", in.retire_ack());
    case v1::SessionRequest::kLeave:
      return Leave{};
    case v1::SessionRequest::MESSAGE_NOT_SET:
      break;
  }
  // After an error the decoder ignores this value.
  at.Refuse("message", "is missing or unknown to this version");
  return Leave{};
}

CoordinatorMessage DecodeResponse(Decoder& at, const v1::SessionResponse& in) {
  switch (in.message_case()) {
    case v1::SessionResponse::kRegistered:
      return DecodeMember<Registered>(at, "registered", in.registered());
    case v1::SessionResponse::kPrepare:
      return DecodeMember<Prepare>(at, "prepare", in.prepare());
    case v1::SessionResponse::kCommit:
      return DecodeMember<Commit>(at, "commit", in.commit());
    case v1::SessionResponse::kAbort:
      return DecodeMember<Abort>(at, "abort", in.abort());
    case v1::SessionResponse::kRetire:
      return DecodeMember<Retire>(at, "retire", in.retire());
    case v1::SessionResponse::kGoodbye:
      return Goodbye{};
    case v1::SessionResponse::MESSAGE_NOT_SET:
      break;
  }
  at.Refuse("message", "is missing or unknown to this version");
  return Goodbye{};
}

}  // namespace

v1::SessionRequest ToProto(const WorkerMessage& message) {
  v1::SessionRequest out;
  std::visit([&out](const auto& in) { Encode(in, RequestFields{&out}.For(in)); }, message);
  return out;
}

absl::StatusOr<WorkerMessage> FromProto(const v1::SessionRequest& proto) {
  if (proto.has_register_()) {
    SY_RETURN_IF_ERROR(CheckProtocolVersion("worker", proto.register_().protocol_version()));
  }
  Decoder at("SessionRequest");
  WorkerMessage message = DecodeRequest(at, proto);
  return at.Finish(std::move(message));
}

v1::SessionResponse ToProto(const CoordinatorMessage& message) {
  v1::SessionResponse out;
  std::visit([&out](const auto& in) { Encode(in, ResponseFields{&out}.For(in)); }, message);
  return out;
}

absl::StatusOr<CoordinatorMessage> FromProto(const v1::SessionResponse& proto) {
  if (proto.has_registered()) {
    SY_RETURN_IF_ERROR(CheckProtocolVersion("coordinator", proto.registered().protocol_version()));
  }
  Decoder at("SessionResponse");
  CoordinatorMessage message = DecodeResponse(at, proto);
  return at.Finish(std::move(message));
}

}  // namespace switchyard
