#include "ctl/contexts.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/suggest.h"
#include "ctl/errors.h"
#include "ctl/json.h"
#include "services/config/yaml_text.h"
#include "yaml-cpp/yaml.h"

namespace switchyard::ctl {
namespace {

absl::Status Bad(const std::string& path, const YAML::Node& node, const std::string& what) {
  return BadConfigAt(path, LineOf(node), "", what);
}

// Checks that `node` is a map of `known` keys, each once.
absl::Status CheckKeys(const std::string& path, const YAML::Node& node,
                       const std::vector<std::string>& known) {
  if (!node.IsMap()) return Bad(path, node, "needs keys and values");
  std::set<std::string> seen;
  for (const auto& item : node) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
    bool is_known = known.empty();
    for (const std::string& each : known) is_known |= key == each;
    if (!is_known) {
      return BadConfigAt(path, LineOf(item.first), key,
                         absl::StrCat("no such key", DidYouMean(NearestWord(key, known), known)));
    }
    if (!seen.insert(key).second) {
      return BadConfigAt(path, LineOf(item.first), key, "is given twice");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWord(const std::string& path, const YAML::Node& map,
                                     const char* key) {
  const YAML::Node value = map[key];
  if (!value) return "";
  if (!value.IsScalar()) return BadConfigAt(path, LineOf(value), key, "needs a single value");
  return value.Scalar();
}

absl::StatusOr<Contexts> ReadDocument(const std::string& path, const YAML::Node& document) {
  SY_RETURN_IF_ERROR(CheckKeys(path, document, {"current", "contexts"}));
  Contexts contexts;
  SY_ASSIGN_OR_RETURN(contexts.current, ReadWord(path, document, "current"));
  if (const YAML::Node all = document["contexts"]; all && !all.IsNull()) {
    SY_RETURN_IF_ERROR(CheckKeys(path, all, {}));
    for (const auto& item : all) {
      SY_RETURN_IF_ERROR(CheckKeys(path, item.second, {"target", "deployment", "tls_dir"}));
      Context context;
      context.name = item.first.Scalar();
      SY_ASSIGN_OR_RETURN(context.target, ReadWord(path, item.second, "target"));
      SY_ASSIGN_OR_RETURN(context.deployment, ReadWord(path, item.second, "deployment"));
      SY_ASSIGN_OR_RETURN(context.tls_dir, ReadWord(path, item.second, "tls_dir"));
      if (context.target.empty()) {
        return BadConfigAt(path, LineOf(item.first), context.name, "has no target");
      }
      contexts.all.push_back(std::move(context));
    }
  }
  if (!contexts.current.empty() && contexts.Find(contexts.current) == nullptr) {
    return Annotate(NoSuchContext(contexts, contexts.current), path);
  }
  return contexts;
}

absl::StatusOr<Contexts> ReadFile(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return Contexts{};
  SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(path));
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents, ParseYaml(text, path));
  if (documents.empty()) return Contexts{};
  try {
    return ReadDocument(path, documents.front());
    // yaml-cpp throws when a node is read, not only when it is parsed.
  } catch (const YAML::Exception& wrong) {
    return BadConfigAt(path, wrong.mark.line + 1, "", wrong.msg);
  }
}

// JSON texts are YAML texts.
std::string Quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

const Context* Contexts::Find(const std::string& name) const {
  for (const Context& each : all) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

void Contexts::Set(const Context& context) {
  for (Context& each : all) {
    if (each.name != context.name) continue;
    if (!context.target.empty()) each.target = context.target;
    if (!context.deployment.empty()) each.deployment = context.deployment;
    if (!context.tls_dir.empty()) each.tls_dir = context.tls_dir;
    return;
  }
  all.push_back(context);
}

std::string ContextsPath(const std::string& xdg_config_home, const std::string& home) {
  // The base directory specification has relative paths ignored.
  if (!xdg_config_home.empty() && xdg_config_home[0] == '/') {
    return absl::StrCat(xdg_config_home, "/syctl.yaml");
  }
  return home.empty() ? "" : absl::StrCat(home, "/.config/syctl.yaml");
}

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  absl::StatusOr<Contexts> contexts = ReadFile(path);
  if (contexts.ok()) return contexts;
  // BAD_CONFIG stands for files of deployments, with advice that helps only there.
  return MakeError(contexts.status().code(), Reason::kBadRequest, contexts.status().message());
}

absl::Status WriteContexts(const std::string& path, const Contexts& contexts) {
  std::string text = "# Written by 'syctl config'.\n";
  if (!contexts.current.empty()) {
    absl::StrAppend(&text, "current: ", Quoted(contexts.current), "\n");
  }
  if (!contexts.all.empty()) text += "contexts:\n";
  for (const Context& each : contexts.all) {
    absl::StrAppend(&text, "  ", Quoted(each.name), ":\n    target: ", Quoted(each.target), "\n");
    if (!each.deployment.empty()) {
      absl::StrAppend(&text, "    deployment: ", Quoted(each.deployment), "\n");
    }
    if (!each.tls_dir.empty()) {
      absl::StrAppend(&text, "    tls_dir: ", Quoted(each.tls_dir), "\n");
    }
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // Another syctl that reads meanwhile sees the old file or the new one.
  const std::string fresh = absl::StrCat(path, ".", ::getpid());
  std::ofstream file(fresh);
  file << text;
  file.close();
  if (file.good()) std::filesystem::rename(fresh, path, error);
  if (file.good() && !error) return absl::OkStatus();
  std::filesystem::remove(fresh, error);
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
                   absl::StrCat("cannot write ", path.empty() ? "the file of contexts" : path,
                                "; check its folder, or set XDG_CONFIG_HOME to another one"));
}

absl::Status NoSuchContext(const Contexts& contexts, const std::string& name) {
  std::vector<std::string> known;
  for (const Context& each : contexts.all) known.push_back(each.name);
  return NoSuch("context", name, known);
}

}  // namespace switchyard::ctl
