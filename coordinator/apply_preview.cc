#include "coordinator/apply_preview.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/history/revisions.h"
#include "coordinator/replan_gate.h"
#include "core/base/amount_text.h"
#include "core/base/error.h"

namespace switchyard {

DeploymentView PreviewOf(const ControllerContext& context, const DeploymentController* running,
                         const DeploymentRecord& record, TimePoint now) {
  // A controller of its own for the view, so that a dry run leaves no trace in the deployment that
  // runs. The plan is that of the running one: it knows what serves and which workers fail.
  const DeploymentController probe(context, record, Revisions(), Epoch{}, now);
  DeploymentView view = probe.View(now);
  const Plan* serving = running == nullptr ? nullptr : running->serving().plan();
  const bool serves = serving != nullptr;
  const absl::StatusOr<PlanProposal> proposal =
      serves ? running->ProposalFor(record, now) : probe.ProposalFor(record, now);
  view.problem = proposal.status();
  if (proposal.ok()) {
    view.left_out = proposal->left_out;
    view.warnings = proposal->warnings;
    view.activity =
        absl::StrFormat("checked; a plan with %s is possible (%s)",
                        CountText(std::ssize(proposal->plan.workers), "worker"), proposal->changes);
    view.proposed = std::make_shared<const Plan>(proposal->plan);
  } else {
    // NOT_READY is the only outcome that other workers could change.
    const bool waits = ReasonOf(proposal.status()) == Reason::kNotReady;
    view.activity = waits ? "checked; the available workers are not sufficient"
                          : "checked; this configuration can never be served";
    if (!waits) return view;
  }
  const std::string missing = MissingWorkers(
      context.members->CandidateIds(serving, record.spec.pools), record.spec.min_workers);
  if (!missing.empty()) {
    absl::StrAppend(&view.activity, "; min_workers is not reached: ", missing);
    // A dry run plans with the workers that are connected, but a real first plan would still wait.
    if (!serves) {
      absl::StrAppend(&view.activity, ", and a first plan waits for more up to join_timeout");
    }
  }
  return view;
}

}  // namespace switchyard
