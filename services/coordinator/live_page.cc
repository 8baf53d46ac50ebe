#include "services/coordinator/live_page.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "services/convert/message_json.h"
#include "services/coordinator/admin_queries.h"
#include "services/coordinator/load_query.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {
namespace {

constexpr char kJson[] = "application/json";

// Nothing that is not of this server, no script or style inside the page, no frame around it.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::vector<std::pair<const char*, const char*>> Headers() {
  return {{"Content-Security-Policy", kPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

HttpAnswer AnswerOf(std::string body, const char* content_type) {
  HttpAnswer answer{.body = std::move(body), .content_type = content_type, .headers = Headers()};
  answer.etag = Sha256(answer.body).ToHex().substr(0, 32);
  return answer;
}

int HttpCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

HttpAnswer ErrorAnswer(const absl::Status& status) {
  HttpAnswer answer = AnswerOf(MessageJson(StatusToProto(status)), kJson);
  answer.code = HttpCodeOf(status.code());
  answer.etag.clear();  // If-None-Match is about answers without a failure
  return answer;
}

template <typename Response>
HttpAnswer JsonAnswer(const absl::StatusOr<Response>& response) {
  return response.ok() ? AnswerOf(MessageJson(*response), kJson) : ErrorAnswer(response.status());
}

// A number among the arguments; 0 if there is none. Errors: kInvalidArgument (BAD_REQUEST).
template <typename Number>
absl::StatusOr<Number> NumberOf(const HttpAsk& ask, const std::string& name) {
  const std::string text = ask.Argument(name);
  Number number = 0;
  if (text.empty() || absl::SimpleAtoi(text, &number)) return number;
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat(name, " is not a number; pass ?", name, "=1 or leave it out"),
                   {{"field", name}});
}

// Plans as JSON. One of 61 layers x 256 experts takes tens of milliseconds to convert, and every
// page that is opened wants it.
class PlanAnswers {
 public:
  // By hash: equal hashes are equal plans.
  HttpAnswer Of(const v1::GetPlanResponse& plan) {
    const MutexLock lock(mutex_);
    for (const auto& [hash, answer] : answers_) {
      if (hash == plan.plan_hash()) return answer;
    }
    if (answers_.size() == kKept) answers_.erase(answers_.begin());
    answers_.emplace_back(plan.plan_hash(), AnswerOf(MessageJson(plan), kJson));
    return answers_.back().second;
  }

 private:
  static constexpr std::size_t kKept = 4;
  Mutex mutex_;
  std::vector<std::pair<std::string, HttpAnswer>> answers_ SY_GUARDED_BY(mutex_);
};

HttpAnswer PlanAnswer(const CoordinatorView& view, const HttpAsk& ask, PlanAnswers* plans) {
  v1::GetPlanRequest request;
  request.set_deployment(ask.Argument("deployment"));
  const absl::StatusOr<v1::GetPlanResponse> plan = GetPlan(view, request);
  return plan.ok() ? plans->Of(*plan) : ErrorAnswer(plan.status());
}

absl::StatusOr<v1::ExplainLayerResponse> LayerAnswer(const CoordinatorView& view,
                                                     const HttpAsk& ask) {
  v1::ExplainLayerRequest request;
  request.set_deployment(ask.Argument("deployment"));
  SY_ASSIGN_OR_RETURN(const std::uint32_t layer, NumberOf<std::uint32_t>(ask, "layer"));
  request.set_layer(layer);
  return ExplainLayer(view, request);
}

absl::StatusOr<v1::ListEventsResponse> EventsAnswer(const LiveSources& sources,
                                                    const HttpAsk& ask) {
  v1::ListEventsRequest request;
  SY_ASSIGN_OR_RETURN(const std::uint64_t after, NumberOf<std::uint64_t>(ask, "after"));
  request.set_after(after);
  return ListEvents(sources.events(0), request);
}

absl::StatusOr<v1::GetLoadResponse> LoadAnswer(const LiveSources& sources, const HttpAsk& ask) {
  v1::GetLoadRequest request;
  request.set_deployment(ask.Argument("deployment"));
  SY_ASSIGN_OR_RETURN(const std::uint64_t after, NumberOf<std::uint64_t>(ask, "after"));
  SY_ASSIGN_OR_RETURN(const std::uint64_t before, NumberOf<std::uint64_t>(ask, "before"));
  SY_ASSIGN_OR_RETURN(const std::uint32_t limit, NumberOf<std::uint32_t>(ask, "limit"));
  request.set_after(after);
  request.set_before(before);
  request.set_limit(limit);
  return GetLoad(sources.view(), request, sources.load);
}

const char* ContentTypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

void AddFiles(std::vector<HttpPage>* pages) {
  for (const EmbeddedFile& file : LivePageFiles()) {
    const HttpAnswer answer = AnswerOf(std::string(file.contents), ContentTypeOf(file.name));
    const bool first = absl::string_view(file.name) == "index.html";
    pages->push_back({.path = first ? "/" : absl::StrCat("/ui/", file.name),
                      .make = [answer](const HttpAsk&) { return answer; },
                      .own_host_only = true});
  }
}

}  // namespace

std::vector<HttpPage> LivePages(LiveSources sources) {
  const auto from = std::make_shared<const LiveSources>(std::move(sources));
  const auto plans = std::make_shared<PlanAnswers>();
  std::vector<HttpPage> pages;
  AddFiles(&pages);
  const auto add = [&pages](const char* path, std::function<HttpAnswer(const HttpAsk&)> make) {
    pages.push_back(
        {.path = path, .make = std::move(make), .work = HttpWork::kQueued, .own_host_only = true});
  };
  add("/api/v1/workers", [from](const HttpAsk&) {
    return JsonAnswer<v1::ListWorkersResponse>(ListWorkers(from->view()));
  });
  add("/api/v1/deployments", [from](const HttpAsk&) {
    return JsonAnswer<v1::ListDeploymentsResponse>(ListDeployments(from->view()));
  });
  add("/api/v1/events",
      [from](const HttpAsk& ask) { return JsonAnswer(EventsAnswer(*from, ask)); });
  add("/api/v1/sessions", [from](const HttpAsk&) {
    return JsonAnswer<v1::ListSessionsResponse>(ListSessions(from->sessions()));
  });
  add("/api/v1/load", [from](const HttpAsk& ask) { return JsonAnswer(LoadAnswer(*from, ask)); });
  add("/api/v1/plan",
      [from, plans](const HttpAsk& ask) { return PlanAnswer(from->view(), ask, plans.get()); });
  add("/api/v1/layer",
      [from](const HttpAsk& ask) { return JsonAnswer(LayerAnswer(from->view(), ask)); });
  return pages;
}

}  // namespace switchyard
