#include "services/coordinator/edge_query.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "coordinator/config_planner.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/dispatch_resolver.h"
#include "core/resolve/mode_limits.h"
#include "core/resolve/what_if.h"
#include "services/convert/plan.h"
#include "services/convert/trace.h"
#include "services/coordinator/layer_traces.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {
namespace {

absl::StatusOr<std::vector<const DeviceProfile*>> ParseEnd(const char* field,
                                                           const std::string& word) {
  if (word.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("edge.", field, " is missing; use cpu, gpu, npu or a profile"),
                     {{"field", absl::StrCat("edge.", field)}});
  }
  absl::StatusOr<std::vector<const DeviceProfile*>> profiles = ProfilesNamed(word);
  if (profiles.ok()) return profiles;
  return WithMetadata(Annotate(profiles.status(), absl::StrCat("edge.", field)), "field",
                      absl::StrCat("edge.", field));
}

// "cpu" names a profile as well as a kind; here it counts as the kind, so that the plan can answer.
bool NamesKind(const std::string& word) {
  const DeviceProfile* profile = FindDeviceProfile(word);
  return profile == nullptr || word == DeviceKindName(profile->kind);
}

v1::HypotheticalDispatch Answer(const DispatchRequest& request) {
  v1::HypotheticalDispatch out;
  out.set_source_profile(request.source.device_profile);
  out.set_worker_profile(request.workers[0].device_profile);
  out.set_phase(EnumToProto(request.phase));
  // A refusal is an answer too: it says why rows could not travel on this edge.
  const DecisionTrace trace = TraceWithinLimits(request, request.workers);
  if (trace.outcome) {
    Encode(ConfigOf(request, trace), out.mutable_config());
  } else {
    *out.mutable_refusal() = StatusToProto(trace.refusal);
  }
  Encode(trace, out.mutable_trace());
  return out;
}

}  // namespace

bool EdgeQuery::Is(const Edge& edge) const {
  return of_kinds && sources.front()->kind == edge.source && workers.front()->kind == edge.worker;
}

absl::StatusOr<EdgeQuery> ParseEdgeQuery(const v1::EdgeQuery& proto) {
  EdgeQuery query;
  SY_ASSIGN_OR_RETURN(query.sources, ParseEnd("source", proto.source()));
  SY_ASSIGN_OR_RETURN(query.workers, ParseEnd("worker", proto.worker()));
  query.of_kinds = NamesKind(proto.source()) && NamesKind(proto.worker());
  return query;
}

absl::StatusOr<EdgeQuery> EveryKind() {
  EdgeQuery query;
  SY_ASSIGN_OR_RETURN(query.sources, ProfilesNamed(DeviceKindName(PlannedSources().front())));
  SY_ASSIGN_OR_RETURN(query.workers, ProfilesNamed(""));
  return query;
}

absl::StatusOr<std::vector<v1::HypotheticalDispatch>> HypotheticalDispatches(
    const DeploymentView& deployment, LayerId layer, std::optional<Phase> phase,
    const EdgeQuery& query) {
  SY_ASSIGN_OR_RETURN(const LayerStorage storage, StorageOfLayer(deployment, layer));
  std::vector<v1::HypotheticalDispatch> out;
  for (const DeviceProfile* source : query.sources) {
    for (const DeviceProfile* profile : query.workers) {
      // One worker that has proven all that its kind can do.
      const std::vector<CapabilitySet> workers{FullCapabilities(*profile)};
      for (const PhaseSpec& served : deployment.spec.phases) {
        if (phase && served.phase != *phase) continue;
        DispatchRequest request =
            RequestFor(deployment.spec, deployment.shape, layer, storage, served);
        request.source = FullCapabilities(*source);
        request.workers = workers;
        out.push_back(Answer(request));
      }
    }
  }
  return out;
}

}  // namespace switchyard
