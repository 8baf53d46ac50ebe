#include "ctl/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/contexts.h"
#include "ctl/verbs.h"
#include "report/text_table.h"

namespace switchyard::ctl {
namespace {

void List(const Run& run, const Contexts& contexts, std::string* out) {
  if (run.json()) {
    Json list = Json::array();
    for (const Context& each : contexts.all) {
      list.push_back({{"name", each.name},
                      {"target", each.target},
                      {"deployment", each.deployment},
                      {"tls_dir", each.tls_dir},
                      {"current", each.name == contexts.current}});
    }
    *out += Print({{"contexts", list}});
    return;
  }
  if (contexts.all.empty()) {
    *out += "There are no contexts; 'syctl config set-context NAME --target HOST:PORT' adds one.\n";
    return;
  }
  TextTable table({"CURRENT", "NAME", "TARGET", "DEPLOYMENT"});
  for (const Context& each : contexts.all) {
    table.Add({each.name == contexts.current ? "*" : "", each.name, each.target, each.deployment});
  }
  *out += table.Print();
}

absl::Status Change(const CommandLine& line, Contexts* contexts, std::string* done) {
  const bool known = contexts->Find(line.name) != nullptr;
  if (line.config_verb == ConfigVerb::kSetContext) {
    if (!known && !line.target_given) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                       absl::StrCat("context ", line.name, " is new; give its --target HOST:PORT"));
    }
    contexts->Set({line.name, line.target_given ? line.target : "", line.deployment, line.tls_dir});
    // The first one is meant from now on; of several the user chooses.
    if (contexts->current.empty()) contexts->current = line.name;
    *done = known ? "is changed" : "is created";
    return absl::OkStatus();
  }
  if (!known) return NoSuchContext(*contexts, line.name);
  if (line.config_verb == ConfigVerb::kUseContext) {
    contexts->current = line.name;
    *done = "is in use";
    return absl::OkStatus();
  }
  contexts->all.erase(
      std::remove_if(contexts->all.begin(), contexts->all.end(),
                     [&line](const Context& each) { return each.name == line.name; }),
      contexts->all.end());
  if (contexts->current == line.name) contexts->current.clear();
  *done = "is forgotten";
  return absl::OkStatus();
}

}  // namespace

absl::Status Config(const Run& run, std::string* out) {
  const CommandLine& line = run.line;
  SY_ASSIGN_OR_RETURN(Contexts contexts, ReadContexts(line.contexts_path));
  if (line.config_verb == ConfigVerb::kGetContexts) {
    List(run, contexts, out);
    return absl::OkStatus();
  }
  if (line.config_verb == ConfigVerb::kCurrentContext) {
    if (contexts.current.empty()) {
      return MakeError(absl::StatusCode::kNotFound, Reason::kBadRequest,
                       "no context is in use; 'syctl config use-context NAME' chooses one");
    }
    *out += run.json() ? Print({{"current", contexts.current}}) : contexts.current + "\n";
    return absl::OkStatus();
  }
  std::string done;
  SY_RETURN_IF_ERROR(Change(line, &contexts, &done));
  SY_RETURN_IF_ERROR(WriteContexts(line.contexts_path, contexts));
  *out += run.json() ? Print({{"context", line.name}, {"current", contexts.current}})
                     : absl::StrCat("context ", line.name, " ", done, "\n");
  return absl::OkStatus();
}

absl::Status UseContext(const Environment& environment, CommandLine* line) {
  line->contexts_path = environment.contexts_path;
  const bool alone = line->verb == Verb::kConfig || line->verb == Verb::kModelInspect ||
                     line->verb == Verb::kModelBuffers || line->verb == Verb::kCerts ||
                     (line->verb == Verb::kVersion && line->client_only);
  if (alone) return absl::OkStatus();
  // A context's own folder goes before that of the environment, the flag's before both.
  const bool tls_given = !line->tls_dir.empty();
  if (!tls_given) line->tls_dir = environment.tls_dir;
  if (line->target_given) return absl::OkStatus();
  if (line->context.empty() && !environment.target.empty()) {
    line->target = environment.target;
    const std::string wrong = CheckTarget(line->target);
    return wrong.empty() ? absl::OkStatus()
                         : MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                                     absl::StrCat("SYCTL_TARGET: ", wrong));
  }
  SY_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(environment.contexts_path));
  const std::string& name = line->context.empty() ? contexts.current : line->context;
  if (name.empty()) return absl::OkStatus();
  const Context* const context = contexts.Find(name);
  if (context == nullptr) return NoSuchContext(contexts, name);
  line->target = context->target;
  if (!tls_given && !context->tls_dir.empty()) line->tls_dir = context->tls_dir;
  if (line->deployment.empty()) line->deployment = context->deployment;
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
