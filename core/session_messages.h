// The messages of a source to the coordinator and to a worker.
//
//   source                  coordinator            worker
//     OpenSessionRequest ----->
//                  <----- SessionGrant
//     AttachRequest --------------------------------->
//                  <--------------------------------- AttachGrant
//     WatchRequest ----------->
//                  <----- PlanUpdate
//     BindRequest (new epoch), ReleaseRequest (old) -->
//
// Plain data; services/ converts it to and from the protos.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/attachment_counters.h"
#include "core/base/clock.h"
#include "core/dispatch_config.h"
#include "core/grant_signature.h"
#include "core/group_messages.h"
#include "core/ids.h"
#include "core/plan.h"
#include "core/trace_settings.h"

namespace switchyard {

// The longest deadline of a step. A bound, so that adding it to a time cannot overflow.
inline constexpr Duration kStepDeadlineMax = std::chrono::hours(24);

// Asks for a plan to send steps under. Fields left at their defaults are filled in by the
// coordinator and returned in the grant.
struct OpenSessionRequest {
  std::string deployment;  // empty: the only deployment that serves `model`
  std::string model;
  Phase phase = Phase::kMixed;
  std::optional<DispatchMode> mode;  // unset: the plan's for the phase
  std::int32_t max_tokens = 0;       // largest batch of one step; 0: the mode's default
  OutputDtype y_dtype = OutputDtype::kF32;
  DispatchDtype combine_dtype = DispatchDtype::kBf16;  // of sums; FP8: collective and normal
  bool strict = false;                                 // a NaN in x or in a weight is refused
  Duration step_deadline{};                            // 0: 1 s in decode, 60 s otherwise
  DeviceKind source = DeviceKind::kCpu;
  // Workers note the largest magnitudes that each expert saw, for calibration. Costs a pass over
  // the rows and keeps the session's rows apart from others'; over p2p only.
  bool record_amax = false;
  BindingChoice binding = BindingChoice::kAuto;
  GroupRequest group = {};  // of a collective session
  // Whom a gateway opens it for, from the certificate of its caller; empty: for itself.
  std::string on_behalf_of = {};
  std::string caller = {};  // as in AttachRequest
  friend bool operator==(const OpenSessionRequest&, const OpenSessionRequest&) = default;
};

// The plan to attach under. Steps under it need no coordinator until the plan's epoch is retired.
struct SessionGrant {
  SessionId session;
  Cookie cookie;
  OpenSessionRequest request;  // with every default filled in; its binding is not kAuto
  Plan plan;
  PlanHash hash;
  Binding binding = Binding::kP2p;
  std::string binding_reason = {};  // why it is that binding, for people
  GroupGrant group = {};            // kCollective
  // The coordinator's, over ClaimsOf(grant). Like the cookie only for the source and its workers.
  GrantSignature signature = {};
  TraceSettings tracing = {};  // of the session's steps; not signed: workers have their own
  friend bool operator==(const SessionGrant&, const SessionGrant&) = default;
};

// WatchPlan sends this once `plan` is committed on every worker of it.
struct PlanUpdate {
  Plan plan;
  PlanHash hash;
  // Workers of the plan before this one that are dead to the coordinator: their lease or their
  // grace has ended. The other workers that `plan` does not have live, and answer what they owe.
  // Not a part of the plan, so `hash` does not cover it.
  std::vector<Incarnation> lost = {};
  // How long a session of another model may go on with its own plan; zero: it ends now.
  Duration former_kept{};
  friend bool operator==(const PlanUpdate&, const PlanUpdate&) = default;
};

// The session that a watcher already holds; a restarted coordinator finds it by its plan. With the
// epoch and the hash it sends only a plan that is newer than the watcher's.
struct WatchRequest {
  SessionId session;
  std::string deployment;
  Phase phase = Phase::kMixed;
  Epoch epoch;
  PlanHash hash;
  // The rest of the grant, as proof. No signature: a source of a former release.
  Cookie cookie = {};
  DispatchMode mode = DispatchMode::kNormal;
  std::int32_t max_tokens = 0;
  bool record_amax = false;
  GroupGrant group = {};
  GrantSignature signature = {};
  std::string caller = {};  // as in AttachRequest
  friend bool operator==(const WatchRequest&, const WatchRequest&) = default;
};

// The transport of rows on one attachment. kAuto takes shared memory on one host and TCP otherwise;
// a choice that is not possible is refused, not replaced.
enum class TransportChoice : std::uint8_t { kAuto = 0, kShm = 1, kTcp = 2, kInProcess = 3 };
absl::string_view TransportChoiceName(TransportChoice choice);  // "auto", "shm", "tcp", "inproc"
// False, with `choice` unchanged, for any other name.
bool TransportChoiceFromName(absl::string_view name, TransportChoice* choice);

// The address of an inbound ring for the other side. Addresses, rkey and cookie are never logged.
struct RingOffer {
  std::string transport;            // "ucx" or "loopback"
  std::string transport_version;    // of its library, "1.13.1"; empty where it has none
  std::uint32_t frame_version = 0;  // kFrameVersion of the offering process
  std::string address;              // of the transport's worker
  Incarnation incarnation;          // of the offering process
  AttachmentId attachment;          // frames *to* the offering process carry it
  std::uint64_t ring_address = 0;
  std::uint64_t ring_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::string rkey;                // how to map the ring; empty where it cannot be
  std::string device_memory = {};  // the DeviceBackend's key of where kRowsOnDevice are; or empty
  friend bool operator==(const RingOffer&, const RingOffer&) = default;
};

// Asks one worker for a ring of requests, and binds the first epoch.
struct AttachRequest {
  SessionId session;
  Cookie cookie;
  std::string deployment;
  Phase phase = Phase::kMixed;
  DispatchMode mode = DispatchMode::kNormal;
  Epoch epoch;
  PlanHash hash;
  TransportChoice transport = TransportChoice::kAuto;
  RingOffer reply_ring;  // where the worker answers
  // Size of the slots that the source will send to; 0: that of the reply ring's.
  std::uint32_t request_slot_bytes = 0;
  bool record_amax = false;
  // No step of the session takes longer. A worker keeps a retired epoch bound for so long.
  Duration step_deadline{};
  std::int32_t max_tokens = 0;    // as granted
  GrantSignature signature = {};  // of the grant
  std::string caller = {};        // the SPIFFE id of its connection, never sent; empty: no TLS
  [[nodiscard]] std::uint32_t request_slot_bytes_or_reply() const {
    return request_slot_bytes > 0 ? request_slot_bytes : reply_ring.slot_bytes;
  }
  friend bool operator==(const AttachRequest&, const AttachRequest&) = default;
};
// Asks a worker for its part in a group. Rings, transport and slots of `attach` do not count.
struct JoinRequest {
  AttachRequest attach;
  GroupGrant group;
  DeviceKind source = DeviceKind::kCpu;
  DispatchDtype combine_dtype = DispatchDtype::kBf16;  // as OpenSessionRequest
  std::string key;                                     // of the source's memory
  std::vector<std::string> logs;  // that the other workers follow; to the worker of rank 0
  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};

// The coordinator signs these; sources show them to workers. The views are into the argument.
GrantClaims ClaimsOf(const SessionGrant& grant);
GrantClaims ClaimsOf(const AttachRequest& request);
GrantClaims ClaimsOf(const JoinRequest& request);
GrantClaims ClaimsOf(const WatchRequest& request);
// Whether one of `keys` signed `claims` for `caller`, or for whoever has the grant.
bool VerifyGrantOf(absl::string_view caller, const GrantKeys& keys, GrantClaims claims,
                   const GrantSignature& signature);

// The worker's answer, bound to the request's epoch. Sources need not know a value of `path`.
struct AttachGrant {
  RingOffer request_ring;          // where the source sends
  std::string path;                // worker -> source: "mapped", "messages", "inproc"
  std::string why_messages;        // why that path is "messages"; else empty
  std::string why_no_device = {};  // why rows do not go from device to device; else empty
  friend bool operator==(const AttachGrant&, const AttachGrant&) = default;
};
// Adds an epoch to an attachment. The hash proves that both sides mean the same plan. Repeated for
// an epoch that is bound already, it announces steps with a longer deadline than any before.
struct BindRequest {
  Epoch epoch;
  PlanHash hash;
  Duration step_deadline{};  // as AttachRequest
  friend bool operator==(const BindRequest&, const BindRequest&) = default;
};
// Ends a binding: no step of the source uses the epoch any more.
struct ReleaseRequest {
  Epoch epoch;
  friend bool operator==(const ReleaseRequest&, const ReleaseRequest&) = default;
};

}  // namespace switchyard
