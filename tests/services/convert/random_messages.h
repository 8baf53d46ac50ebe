// Random but well-formed messages, for round trips. Every field differs from its default with high
// probability, so that a forgotten one is noticed. Equal seeds, equal messages.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/control_messages.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard::testing {

class RandomMessages {
 public:
  explicit RandomMessages(std::uint64_t seed) : rng_(seed) {}

  SeededRng& rng() { return rng_; }

  std::string Text(std::size_t bytes_max = 24) {
    std::string text(1 + rng_.Below(bytes_max), ' ');
    for (char& c : text) c = "abcdefghij-_./:0123456789"[rng_.Below(25)];
    return text;
  }
  std::string Bytes(std::size_t bytes_max = 40) {
    std::string bytes(1 + rng_.Below(bytes_max), '\0');
    for (char& c : bytes) c = static_cast<char>(rng_.Next());
    return bytes;
  }
  std::int32_t Index() { return static_cast<std::int32_t>(rng_.Next() & 0x7fffffffU); }
  template <typename Enum>
  Enum Any(Enum last) {
    return static_cast<Enum>(rng_.Below(static_cast<std::uint64_t>(last) + 1));
  }
  Sha256Digest Digest() {
    Sha256Digest digest;
    for (std::uint8_t& byte : digest.bytes) byte = static_cast<std::uint8_t>(rng_.Next());
    return digest;
  }
  Duration Time() { return Duration(rng_.Next() >> 2); }
  absl::Status Error() {
    const std::vector<Reason> reasons = AllReasons();
    return MakeError(static_cast<absl::StatusCode>(1 + rng_.Below(16)),
                     reasons[rng_.Below(reasons.size())], Text(), {{"a", Text()}, {"b", Text()}});
  }
  template <typename Make>
  auto List(Make make, std::uint64_t most = 4) {
    std::vector<decltype(make())> out;
    for (std::uint64_t i = rng_.Below(most + 1); i > 0; --i) out.push_back(make());
    return out;
  }

  MoeShape Shape() { return {Index(), Index(), Index(), Index()}; }
  PlanWorker Worker() {
    return {Text(), rng_.NextId<Incarnation>(), Text(), Any(kLastDeviceKind), Text()};
  }
  LayerPlacement Layer() {
    return {LayerId{Index()}, List([this] {
              return PhysicalExpert{ExpertId{Index()}, WorkerOrdinal{Index()}, SlotId{Index()}};
            })};
  }
  DispatchConfig Config() {
    return {LayerId{Index()},
            Any(Phase::kMixed),
            {Any(kLastDeviceKind), Any(kLastDeviceKind)},
            Any(DispatchMode::kLowLatency),
            Any(DispatchDtype::kNvfp4),
            Any(DispatchDtype::kNvfp4),
            Any(kLastQuantScheme),
            Index(),
            List([this] { return Text(); }),
            Any(ScaleKind::kE4m3),
            static_cast<float>(1 + Index())};
  }
  Plan APlan() {
    return {Text(),
            Text(),
            Epoch{rng_.Next()},
            Shape(),
            Digest(),
            List([this] { return Worker(); }),
            List([this] { return Layer(); }),
            List([this] { return Config(); })};
  }
  CapabilitySet Capabilities() {
    return {Any(kLastDeviceKind),
            Text(),
            Text(),
            List([this] { return Any(DispatchDtype::kNvfp4); }),
            List([this] { return Any(kLastQuantScheme); }),
            List([this] { return Text(); }),
            Index(),
            static_cast<std::int64_t>(rng_.Next() >> 1),
            {Any(GdnVerifyKernel::kFlashinfer), rng_.Below(2) == 0},
            Text()};
  }
  GrantKey Key() { return GrantKey::Random(&rng_); }
  GrantSignature Signature() { return {Key().bytes}; }
  TensorHash Tensor() {
    return {LayerId{Index()}, ExpertId{Index()}, Any(Projection::kDown), Digest()};
  }

  StagingReport Staging() {
    StagingReport report{Text(), Epoch{rng_.Next()}, Index(), Index(), Index(), Index()};
    if (report.experts_done > report.experts) std::swap(report.experts_done, report.experts);
    if (report.bytes_done > report.bytes) std::swap(report.bytes_done, report.bytes);
    return report;
  }

  // Each kind at most once, none of them empty.
  std::vector<WorkTimes> Times() {
    std::vector<WorkTimes> all;
    for (const WorkKind kind : {WorkKind::kDecode, WorkKind::kPrefill, WorkKind::kLockstep}) {
      if (rng_.Below(2) == 0) continue;
      WorkTimes& times = all.emplace_back(WorkTimes{.kind = kind});
      times.step.buckets[rng_.Below(times.step.buckets.size())] = 1 + rng_.Below(1000);
      times.step.sum = rng_.Next() >> 1;
      if (rng_.Below(2) == 0) continue;
      times.queue.buckets[rng_.Below(times.queue.buckets.size())] = 1 + rng_.Below(1000);
      times.queue.sum = rng_.Next() >> 1;
    }
    return all;
  }
  LoadReport Load() {
    LoadReport report{Text(), Epoch{rng_.Next()}, {}};
    for (std::int32_t layer = 0; layer < 3; ++layer) {
      for (std::uint64_t i = rng_.Below(4); i > 0; --i) {
        report.experts.push_back({LayerId{layer * 7}, ExpertId{static_cast<std::int32_t>(i)},
                                  static_cast<std::uint32_t>(rng_.Next())});
      }
    }
    return report;
  }
  WorkerMessage FromWorker() {
    switch (rng_.Below(8)) {
      case 0:
        return Register{
            Text(),
            rng_.NextId<Incarnation>(),
            absl::StrCat("host", rng_.Below(9), ":", 1 + rng_.Below(65535)),
            Capabilities(),
            List([this] {
              return ResidentEpoch{Text(), Epoch{rng_.Next()}, Digest(), rng_.Below(2) == 0};
            }),
            List([this] {
              return DeploymentKeys{Text(), List([this] { return Key(); })};
            }),
            rng_.NextId<LifeSecret>(),
            Text(),
            rng_.Below(2) == 0,
            Text()};
      case 1:
        return Heartbeat{rng_.Next(), Time(), List([this] { return Staging(); }),
                         List([this] { return Load(); }), Times()};
      case 2:
        return PrepareAck{Text(), Epoch{rng_.Next()}, rng_.Next(), Digest()};
      case 3:
        return PrepareNack{Text(), Epoch{rng_.Next()}, rng_.Next(), Error()};
      case 4:
        return CommitAck{Text(), Epoch{rng_.Next()}, Digest()};
      case 5:
        return CommitNack{Text(), Epoch{rng_.Next()}, Error()};
      case 6:
        return RetireAck{Text(), Epoch{rng_.Next()}};
      default:
        return Leave{};
    }
  }
  CoordinatorMessage FromCoordinator() {
    switch (rng_.Below(6)) {
      case 0:
        return Registered{Time(), Tracing()};
      case 1:
        return Prepare{
            rng_.Next(), APlan(), Digest(), Text(), List([this] { return Tensor(); }), List([this] {
              return Key();
            })};
      case 2:
        return Commit{Text(), Epoch{rng_.Next()}, Digest()};
      case 3:
        return Abort{Text(), Epoch{rng_.Next()}};
      case 4:
        return Retire{Text(), Epoch{rng_.Next()}, Time()};
      default:
        return Goodbye{};
    }
  }

  OpenSessionRequest Order() {
    OpenSessionRequest order{.deployment = Text(),
                             .model = Text(),
                             .phase = Any(Phase::kMixed),
                             .mode = std::nullopt,
                             .max_tokens = Index(),
                             .y_dtype = Any(OutputDtype::kF32),
                             .combine_dtype = Any(DispatchDtype::kNvfp4),
                             .strict = rng_.Below(2) == 0,
                             .step_deadline = Time(),
                             .source = Any(kLastDeviceKind),
                             .record_amax = rng_.Below(2) == 0,
                             .binding = Any(BindingChoice::kCollective)};
    if (rng_.Below(2) == 0) {
      order.group = {.name = Text(), .source = 1, .sources = Index(), .hosts = {Text(), ""}};
      if (rng_.Below(2) == 0) order.group.device = Any(kLastDeviceKind);
      order.group.obstacle = Text();
    }
    if (rng_.Below(3) > 0) order.mode = Any(DispatchMode::kLowLatency);
    return order;
  }
  TraceSettings Tracing() {
    if (rng_.Below(2) == 0) return {};
    return {.ratio = rng_.Uniform(), .endpoint = Text()};
  }
  SessionGrant Grant() {
    SessionGrant grant{.session = rng_.NextId<SessionId>(),
                       .cookie = Cookie{rng_.Next()},
                       .request = Order(),
                       .plan = APlan(),
                       .hash = Digest(),
                       .signature = Signature(),
                       .tracing = Tracing()};
    grant.binding_reason = Text();
    if (rng_.Below(2) == 0) {
      grant.binding = Binding::kCollective;
      grant.group = {.id = rng_.NextId<GroupId>(), .source = Index(), .sources = Index()};
    }
    return grant;
  }
  PlanUpdate News() {
    return {APlan(), Digest(), List([this] { return rng_.NextId<Incarnation>(); })};
  }
  WatchRequest Watch() {
    WatchRequest watch{rng_.NextId<SessionId>(), Text(), Any(Phase::kMixed), Epoch{rng_.Next()},
                       Digest()};
    if (rng_.Below(3) == 0) return watch;  // as a source of a former release
    watch.cookie = Cookie{rng_.Next()};
    watch.mode = Any(DispatchMode::kLowLatency);
    watch.max_tokens = Index();
    watch.record_amax = rng_.Below(2) == 0;
    watch.signature = Signature();
    if (rng_.Below(2) == 0) watch.group = {rng_.NextId<GroupId>(), Index(), Index()};
    return watch;
  }
  RingOffer Ring() {
    return {.transport = Text(),
            .transport_version = Text(),
            .frame_version = static_cast<std::uint32_t>(rng_.Next()),
            .address = Bytes(),
            .incarnation = rng_.NextId<Incarnation>(),
            .attachment = AttachmentId{static_cast<std::uint32_t>(rng_.Next())},
            .ring_address = rng_.Next(),
            .ring_bytes = rng_.Next(),
            .slots = static_cast<std::uint32_t>(rng_.Next()),
            .slot_bytes = static_cast<std::uint32_t>(rng_.Next()),
            .rkey = Bytes()};
  }
  AttachRequest Attach() {
    return {.session = rng_.NextId<SessionId>(),
            .cookie = Cookie{rng_.Next()},
            .deployment = Text(),
            .phase = Any(Phase::kMixed),
            .mode = Any(DispatchMode::kLowLatency),
            .epoch = Epoch{rng_.Next()},
            .hash = Digest(),
            .transport = Any(TransportChoice::kInProcess),
            .reply_ring = Ring(),
            .request_slot_bytes = static_cast<std::uint32_t>(rng_.Next()),
            .record_amax = rng_.Below(2) == 0,
            .step_deadline = Time(),
            .max_tokens = Index(),
            .signature = Signature()};
  }
  AttachmentCounters Counters() {
    return {.session = rng_.NextId<SessionId>(),
            .worker_id = "",
            .path = Text(),
            .rows = rng_.Next(),
            .request_payload_bytes = rng_.Next(),
            .reply_payload_bytes = rng_.Next(),
            .frames = rng_.Next(),
            .nan_rows = rng_.Next(),
            .hits = List([this] {
              return AttachmentCounters::Hit{LayerId{Index()}, ExpertId{Index()}, rng_.Next(),
                                             static_cast<float>(Index()),
                                             static_cast<float>(Index())};
            })};
  }

 private:
  SeededRng rng_;
};

}  // namespace switchyard::testing
