#include "ctl/errors.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"

namespace switchyard::ctl {

// The hint is chosen by the reason and not by the text, so that a new wording does not lose it.
std::string NextStep(const absl::Status& status) {
  // This program itself read a checkpoint, so no command to the coordinator can help.
  if (MetadataOf(status).contains("checkpoint")) return "";
  switch (ReasonOf(status)) {
    case Reason::kCoordinatorLost:
      return "check that switchyard-coordinator runs there, or use --target host:port, and "
             "--tls-dir where it takes certificates";
    case Reason::kNotReady:
      // Waiting does not help: others are needed for a worker that is to be drained, and what
      // another command has done meanwhile the text says.
      if (absl::IsFailedPrecondition(status)) {
        return MetadataOf(status).contains("worker") ? "add workers; 'syctl get workers' lists them"
                                                     : "";
      }
      return "retry in a moment; 'syctl get deployments' shows what it waits for";
    case Reason::kUnknownModel:
      return "'syctl get deployments' lists the deployments; 'syctl apply -f FILE' adds one";
    case Reason::kUnknownWorker:
      return "'syctl get workers' lists the workers";
    case Reason::kUnknownLayer:
      return "'syctl get layers' lists the MoE layers";
    case Reason::kBadConfig:
      // The file is right: there is no room for it, and the text says how to make some.
      if (absl::IsResourceExhausted(status)) return "";
      return "correct the file and check it with 'syctl apply --dry-run -f FILE'";
    case Reason::kUnsupported:
      return "'syctl version' compares this program with the coordinator";
    default:
      return "";
  }
}

absl::Status NoSuch(const std::string& kind, const std::string& name,
                    const std::vector<std::string>& known) {
  const std::string available =
      known.empty() ? "there are none" : absl::StrCat("known: ", absl::StrJoin(known, ", "));
  return MakeError(absl::StatusCode::kNotFound, Reason::kBadRequest,
                   absl::StrCat("unknown ", kind, " ", name, "; ", available), {{kind, name}});
}

std::string ErrorText(const absl::Status& status) {
  std::string out = absl::StrCat("syctl: ", status.message(), "\n");
  std::vector<std::pair<std::string, std::string>> rows{
      {"code", absl::StatusCodeToString(status.code())},
      {"reason", std::string(ReasonName(ReasonOf(status)))}};
  // Empty ids are omitted: the error carries the same keys for every request.
  for (const auto& row : MetadataOf(status)) {
    if (!row.second.empty()) rows.push_back(row);
  }
  std::size_t widest = 0;
  for (const auto& [key, value] : rows) widest = std::max(widest, key.size());
  for (const auto& [key, value] : rows) {
    absl::StrAppendFormat(&out, "  %-*s  %s\n", static_cast<int>(widest), key, value);
  }
  if (const std::string next = NextStep(status); !next.empty()) {
    absl::StrAppend(&out, "next: ", next, "\n");
  }
  return out;
}

Json ErrorObject(const absl::Status& status) {
  Json error = ToJson(status);
  if (const std::string next = NextStep(status); !next.empty()) error["next"] = next;
  return {{"error", error}};
}

}  // namespace switchyard::ctl
