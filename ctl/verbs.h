// The verbs of syctl with their options and help, as CLI11 parses them, for ctl/command_line.cc.
#pragma once

#include <string>
#include <vector>

#include "core/cli/cli11.h"
#include "ctl/command_line.h"

namespace switchyard::ctl {

// Arguments as CLI11 stores them, before they become a CommandLine.
struct RawCommandLine {
  CommandLine line;
  std::string kind;
  std::string name;
  std::vector<std::string> object;  // "worker w0", "worker/w0" or "w0"
  std::string condition;
  std::string output;
  std::string color = "auto";
  std::string phase;
  std::string edge;
  double timeout_s = 0;
  Verb model_verb = Verb::kModelInspect;  // which of those of 'model'
};

// Adds all verbs to `app`. Parsing fills `raw`, which outlives it.
void AddVerbs(CLI::App& app, RawCommandLine& raw);
// The names of the verbs in the order of the help; also the candidates for "did you mean".
const std::vector<std::string>& Verbs();

// A word for a kind is accepted in singular and plural, because both read naturally after a verb.
struct KindWord {
  const char* one;
  const char* many;
  Kind kind;
};
inline constexpr KindWord kKinds[] = {{"deployment", "deployments", Kind::kDeployments},
                                      {"model", "models", Kind::kModels},
                                      {"worker", "workers", Kind::kWorkers},
                                      {"layer", "layers", Kind::kLayers},
                                      {"plan", "plan", Kind::kPlan},
                                      {"revision", "revisions", Kind::kRevisions},
                                      {"session", "sessions", Kind::kSessions},
                                      {"event", "events", Kind::kEvents},
                                      {"metric", "metrics", Kind::kMetrics}};

// Returns what is wrong with a "host:port"; empty: nothing is.
std::string CheckTarget(const std::string& text);

// "; did you mean "worker"?", or the list of all where none is near.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known);

}  // namespace switchyard::ctl
