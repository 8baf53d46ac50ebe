#include "client/status_json.h"

#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/resolve/mode_resolver.h"

namespace switchyard {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(absl::string_view view) { return std::string(view); }

Json ConfigJson(const DispatchConfig& config) {
  return {{"layer", config.layer.value},
          {"phase", Text(PhaseName(config.phase))},
          {"edge", Text(DeviceKindName(config.edge.source)) + ":" +
                       Text(DeviceKindName(config.edge.worker))},
          {"mode", Text(DispatchModeName(config.mode))},
          {"wire_dtype", Text(DispatchDtypeName(config.wire_dtype))},
          {"combine_dtype", Text(DispatchDtypeName(config.combine_dtype))},
          {"scheme", QuantSchemeInfoOf(config.scheme).name},
          {"max_tokens_per_step", config.max_tokens_per_step},
          {"trail", config.trail}};
}

Json PlanJson(const SessionGrant& grant) {
  const Plan& plan = grant.plan;
  Json layers = Json::array();
  for (const LayerPlacement& layer : plan.layers) {
    Json experts = Json::array();
    for (const PhysicalExpert& expert : layer.experts) {
      experts.push_back({{"expert", expert.expert.value},
                         {"worker", plan.workers[static_cast<std::size_t>(expert.worker.value)].id},
                         {"slot", expert.slot.value}});
    }
    layers.push_back({{"layer", layer.layer.value}, {"experts", experts}});
  }
  Json configs = Json::array();
  for (const DispatchConfig& config : plan.configs) {
    // The plan has configs of all phases; the session uses those of its own.
    if (config.phase == grant.request.phase) configs.push_back(ConfigJson(config));
  }
  Json workers = Json::array();
  for (const PlanWorker& worker : plan.workers) {
    workers.push_back({{"id", worker.id},
                       {"incarnation", ToHex(worker.incarnation)},
                       {"device", Text(DeviceKindName(worker.device))},
                       {"kernel_family", worker.kernel_family}});
  }
  return {{"deployment", plan.deployment},
          {"model", plan.model},
          {"epoch", plan.epoch.value},
          {"hash", grant.hash.ToHex()},
          {"workers", workers},
          {"layers", layers},
          {"configs", configs}};
}

Json StatusJson(const RunnerStatus& status) {
  Json attachments = Json::array();
  for (const AttachmentStatus& row : status.attachments) {
    attachments.push_back({{"worker", row.worker_id},
                           {"ready", row.ready},
                           {"request_path", row.request_path},
                           {"reply_path", row.reply_path},
                           {"why_messages", Text(row.why_messages)},
                           {"why_no_device", Text(row.why_no_device)},
                           {"credits", row.credits},
                           {"credits_free", row.credits_free},
                           {"request_slot_bytes", row.slot_bytes.dispatch},
                           {"reply_slot_bytes", row.slot_bytes.combine},
                           {"frames_sent", row.frames_sent},
                           {"replies_late", row.replies_late},
                           {"replies_unexpected", row.replies_unexpected},
                           {"last_error", row.last_error}});
  }
  return {{"watching", status.watching},         {"steps_in_flight", status.steps_in_flight},
          {"steps", status.times.steps},         {"plan_ns", status.times.plan_ns},
          {"encode_ns", status.times.encode_ns}, {"send_ns", status.times.send_ns},
          {"sum_ns", status.times.sum_ns},       {"device_steps", status.times.device_steps},
          {"attachments", attachments}};
}

Json CountersJson(const SessionCounters& worker) {
  Json attachments = Json::array();
  for (const AttachmentCounters& row : worker.attachments) {
    Json hits = Json::array();
    for (const AttachmentCounters::Hit& hit : row.hits) {
      Json item{{"layer", hit.layer.value}, {"expert", hit.expert.value}, {"rows", hit.rows}};
      // 0 means that nothing was recorded, which is not a magnitude.
      if (hit.inputs_amax > 0 || hit.middle_amax > 0) {
        item["inputs_amax"] = hit.inputs_amax;
        item["middle_amax"] = hit.middle_amax;
      }
      hits.push_back(std::move(item));
    }
    attachments.push_back({{"path", row.path},
                           {"rows", row.rows},
                           {"request_payload_bytes", row.request_payload_bytes},
                           {"reply_payload_bytes", row.reply_payload_bytes},
                           {"frames", row.frames},
                           {"nan_rows", row.nan_rows},
                           {"hits", hits}});
  }
  return {{"worker", worker.worker_id}, {"attachments", attachments}};
}

Json ErrorObject(const absl::Status& status) {
  Json metadata = Json::object();
  for (const auto& [key, value] : MetadataOf(status)) metadata[key] = value;
  return {{"code", absl::StatusCodeToString(status.code())},
          {"reason", Text(ReasonName(ReasonOf(status)))},
          {"message", Text(status.message())},
          {"metadata", metadata}};
}

// If the grant names no mode, assume normal, which has no graphs.
void AddGraphs(const OpenSessionRequest& request, Json& out) {
  const DispatchMode mode = request.mode.value_or(DispatchMode::kNormal);
  out["supports_graphs"] = SupportsGraphs(mode);
  if (!SupportsGraphs(mode)) out["no_graphs_because"] = Text(WhyNoGraphs(mode));
}

}  // namespace

std::string ErrorJson(const absl::Status& status) {
  if (status.ok()) return "{}";
  // Texts may quote a caller's bytes, and those may be invalid UTF-8: they become U+FFFD.
  return ErrorObject(status).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ReportJson(const SessionReport& report) {
  Json workers = Json::array();
  for (std::size_t w = 0; w < report.workers.size(); ++w) {
    Json worker = CountersJson(report.workers[w]);
    if (!report.asked[w].ok()) worker["error"] = ErrorObject(report.asked[w]);
    workers.push_back(std::move(worker));
  }
  const OpenSessionRequest& request = report.grant.request;
  Json all{{"session", ToHex(report.grant.session)},
           {"path", Text(BindingName(report.grant.binding))},
           {"path_reason", report.grant.binding_reason},
           {"phase", Text(PhaseName(request.phase))},
           {"mode", request.mode.has_value() ? Text(DispatchModeName(*request.mode)) : "plan"}};
  AddGraphs(request, all);
  all.update({{"y_dtype", Text(OutputDtypeName(request.y_dtype))},
              {"combine_dtype", Text(DispatchDtypeName(request.combine_dtype))},
              {"max_tokens", request.max_tokens},
              {"hidden", report.grant.plan.shape.hidden},
              {"experts", report.grant.plan.shape.experts},
              {"top_k", report.grant.plan.shape.top_k},
              {"plan", PlanJson(report.grant)},
              {"source", StatusJson(report.status)},
              {"workers", workers}});
  if (report.traces.has_value()) {
    all["traces"] = {{"spans_exported", report.traces->exported},
                     {"spans_failed", report.traces->failed},
                     {"records_dropped", report.traces->dropped}};
  }
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace switchyard
