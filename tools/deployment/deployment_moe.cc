#include "tools/deployment/deployment_moe.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "client/step_sessions.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "tools/deployment/plan_report.h"
#include "tools/deployment/routing_tally.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr std::size_t kNormalTokensMax = 4096;  // per call; bounds memory, as normal has no limit
constexpr Duration kReportTimeout = std::chrono::seconds(10);

// The kinds of steps of this engine, which only feeds whole prompts and single tokens.
constexpr StepKind kPrompt{.extend = true};
constexpr StepKind kToken{};

// The session for one kind of step, with a prediction of its workers' counters.
class TalliedSession {
 public:
  // `sessions` must outlive it.
  static absl::StatusOr<std::unique_ptr<TalliedSession>> Make(const StepSessions& sessions,
                                                              const StepKind& kind,
                                                              Duration retry_for);

  absl::Status Run(const MoeCall& call);
  absl::Status AddTo(ExpertsReport& report, const std::string& expected_path);

  [[nodiscard]] const SessionGrant& grant() const { return grant_; }

  MoePath path;

 private:
  TalliedSession(MoeSession* session, SessionGrant grant, std::string own, Duration retry_for)
      : session_(session),
        retry_for_(retry_for),
        grant_(std::move(grant)),
        own_(std::move(own)),
        tally_(grant_.plan, grant_.request.phase, *grant_.request.mode, own_) {}

  MoeSession* session_;
  Duration retry_for_;
  SessionGrant grant_;
  // Why the workers' counts say nothing; empty if they can be compared.
  [[nodiscard]] std::string NotCompared(const SessionReport& report) const;

  std::string own_;  // the gateway's worker; empty in p2p
  RoutingTally tally_;
  int repeated_ = 0;  // attempts that failed
};

absl::StatusOr<std::unique_ptr<TalliedSession>> TalliedSession::Make(const StepSessions& sessions,
                                                                     const StepKind& kind,
                                                                     Duration retry_for) {
  SY_ASSIGN_OR_RETURN(MoeSession* const session, sessions.For(kind));
  SY_ASSIGN_OR_RETURN(SessionGrant grant, session->Grant());
  SY_ASSIGN_OR_RETURN(std::string own, session->GatewayWorker());
  const std::int32_t limit = grant.plan.configs.front().max_tokens_per_step;
  const bool low_latency = grant.request.mode == DispatchMode::kLowLatency;
  // The plan's limit applies if the session has none of its own.
  const std::int32_t max_tokens = grant.request.max_tokens > 0 ? grant.request.max_tokens : limit;
  std::unique_ptr<TalliedSession> made(
      new TalliedSession(session, std::move(grant), std::move(own), retry_for));
  // Only they cut a batch into chunks by themselves.
  const bool chunks = !low_latency && made->grant_.binding != Binding::kCollective;
  made->path.max_tokens =
      !chunks && max_tokens > 0 ? static_cast<std::size_t>(max_tokens) : kNormalTokensMax;
  made->path.run = [raw = made.get()](const MoeCall& call) { return raw->Run(call); };
  return made;
}

absl::Status TalliedSession::Run(const MoeCall& call) {
  const StepRequest request =
      RequestOf({.layer = call.layer,
                 .hidden = static_cast<std::int32_t>(call.x.size() / call.tokens),
                 .top_k = static_cast<std::int32_t>(call.top_k),
                 .x = call.x,
                 .ids = call.ids,
                 .weights = call.weights,
                 .y = call.y.data()});
  // One step at a time: the decoder needs each answer before it can go on.
  int attempts = 0;
  SY_RETURN_IF_ERROR(session_->Run(request, retry_for_, &attempts));
  repeated_ += attempts - 1;
  // Counted only after success: a failed step may have reached some workers and not others.
  tally_.Count(call);
  return absl::OkStatus();
}

void Compare(absl::string_view what, std::uint64_t counted, std::uint64_t predicted,
             std::vector<std::string>& differences) {
  if (counted == predicted) return;
  differences.push_back(absl::StrFormat("%s: counted %d, predicted %d", what, counted, predicted));
}

std::string TalliedSession::NotCompared(const SessionReport& report) const {
  if (grant_.binding == Binding::kCollective) {
    return "in lockstep, only devices know which rows came";
  }
  for (const absl::Status& asked : report.asked) {
    if (!asked.ok()) return std::string(asked.message());
  }
  // A new epoch may have moved experts, so the prediction for the old one does not hold.
  const Epoch now = report.grant.plan.epoch;
  if (now != grant_.plan.epoch) {
    return absl::StrFormat("the plan changed during the run, from epoch %d to %d",
                           grant_.plan.epoch.value, now.value);
  }
  // The workers count by session, and a gateway opens another one when it is lost.
  if (report.grant.session != grant_.session) {
    return absl::StrFormat("the session through gateway %s was opened again, through %s", own_,
                           report.status.gateway_worker);
  }
  // Some workers have counted the rows of the attempts that failed.
  return repeated_ == 0 ? "" : absl::StrFormat("%d attempts failed and were repeated", repeated_);
}

absl::Status TalliedSession::AddTo(ExpertsReport& experts, const std::string& expected_path) {
  std::vector<WorkerReport>& workers = experts.workers;
  SY_ASSIGN_OR_RETURN(const SessionReport report, session_->Report(kReportTimeout));
  if (std::string why = NotCompared(report); !why.empty()) {
    experts.not_compared = std::move(why);
    return absl::OkStatus();
  }
  // Both sessions add to the same rows; either may have more workers.
  workers.resize(std::max(workers.size(), report.workers.size()));
  for (std::size_t w = 0; w < report.workers.size(); ++w) {
    WorkerReport& row = workers[w];
    row.worker = report.workers[w].worker_id;
    const WorkerCounts predicted = tally_.Of(w);
    AttachmentCounters sum;
    for (const AttachmentCounters& counters : report.workers[w].attachments) {
      sum.rows += counters.rows;
      sum.request_payload_bytes += counters.request_payload_bytes;
      sum.reply_payload_bytes += counters.reply_payload_bytes;
      sum.hits.insert(sum.hits.end(), counters.hits.begin(), counters.hits.end());
      row.path = counters.path;
    }
    // A gateway calls its own experts directly.
    const std::string expected = row.worker == own_ && !own_.empty() ? "inproc" : expected_path;
    // A worker without rows has no path to compare: the session may never have connected to it.
    const bool traveled = predicted.rows > 0 || sum.rows > 0;
    if (traveled && !expected.empty() && row.path != expected) {
      row.differences.push_back(
          absl::StrCat("rows traveled by ", row.path, ", expected ", expected));
    }
    // Before the sums below, which mix the sessions: a difference belongs to one of them.
    Compare("rows", sum.rows, predicted.rows, row.differences);
    Compare("request bytes", sum.request_payload_bytes, predicted.request_bytes, row.differences);
    Compare("reply bytes", sum.reply_payload_bytes, predicted.reply_bytes, row.differences);
    experts.hits.insert(experts.hits.end(), sum.hits.begin(), sum.hits.end());
    for (std::string& text : tally_.CompareHits(w, sum.hits)) {
      row.differences.push_back(std::move(text));
    }
    row.predicted.rows += predicted.rows;
    row.predicted.request_bytes += predicted.request_bytes;
    row.predicted.reply_bytes += predicted.reply_bytes;
    row.predicted.expert_hits += predicted.expert_hits;
    row.counted.rows += sum.rows;
    row.counted.request_bytes += sum.request_payload_bytes;
    row.counted.reply_bytes += sum.reply_payload_bytes;
    for (const AttachmentCounters::Hit& hit : sum.hits) row.counted.expert_hits += hit.rows;
  }
  return absl::OkStatus();
}

class DeploymentMoe final : public MoeProvider {
 public:
  DeploymentMoe(std::unique_ptr<Client> client, DeploymentMoeOptions options)
      : options_(std::move(options)), client_(std::move(client)) {}

  absl::Status Open() {
    StepSessionsRequest request;
    request.common.deployment = options_.deployment;
    request.common.model = options_.served_model;
    request.common.record_amax = options_.record_amax;
    if (options_.in_lockstep) request.common.binding = BindingChoice::kCollective;
    request.choice = options_.mode;
    SY_ASSIGN_OR_RETURN(sessions_, StepSessions::Open(*client_, request, options_.ready_timeout));
    SY_ASSIGN_OR_RETURN(prefill_, TalliedSession::Make(*sessions_, kPrompt, options_.retry_for));
    SY_ASSIGN_OR_RETURN(decode_, TalliedSession::Make(*sessions_, kToken, options_.retry_for));
    return absl::OkStatus();
  }

  [[nodiscard]] std::string Describe() const override {
    return DescribePlan(prefill_->grant(), decode_->grant());
  }
  [[nodiscard]] const MoePath& prefill() const override { return prefill_->path; }
  [[nodiscard]] const MoePath& decode() const override { return decode_->path; }
  absl::StatusOr<ExpertsReport> Report() override {
    ExpertsReport report;
    report.how = options_.description;
    SY_RETURN_IF_ERROR(prefill_->AddTo(report, options_.expected_path));
    SY_RETURN_IF_ERROR(decode_->AddTo(report, options_.expected_path));
    // One session's counts alone would look like too few.
    if (!report.not_compared.empty()) report.workers.clear();
    for (const DispatchConfig& config : prefill_->grant().plan.configs) {
      if (config.phase != Phase::kPrefill) continue;
      report.prefill.push_back(ConfigOfSession(config, prefill_->grant().request));
    }
    return report;
  }

 private:
  DeploymentMoeOptions options_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<StepSessions> sessions_;  // destroyed before the client
  std::unique_ptr<TalliedSession> prefill_;
  std::unique_ptr<TalliedSession> decode_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeploymentMoe(
    std::unique_ptr<Client> client, const DeploymentMoeOptions& options) {
  auto moe = std::make_unique<DeploymentMoe>(std::move(client), options);
  SY_RETURN_IF_ERROR(moe->Open());
  return std::unique_ptr<MoeProvider>(std::move(moe));
}

}  // namespace switchyard::qwen3_moe
