// What syctl was asked, from its words. Pure; thread-safe.
//
//   syctl apply -f FILE [--dry-run]
//   syctl get deployments|models|workers|layers|plan
//   syctl describe deployment|model|worker|layer NAME
//   syctl explain layer N [--phase P] [--edge SOURCE:WORKER]
//   syctl model inspect PATH [--layer N] [--worker-kind K]
//   syctl version [--client]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "switchyard/v1/types.pb.h"

namespace switchyard::ctl {

inline constexpr char kDefaultTarget[] = "127.0.0.1:7700";

enum class Verb { kApply, kGet, kDescribe, kExplain, kModelInspect, kVersion };
enum class Kind { kDeployments, kModels, kWorkers, kLayers, kPlan };
enum class OutputFormat { kTable, kJson };

struct CommandLine {
  Verb verb = Verb::kVersion;
  Kind kind = Kind::kDeployments;  // get and describe
  std::string target = kDefaultTarget;
  std::optional<OutputFormat> output;       // unset: by where standard output goes
  Duration timeout{};                       // of each call
  std::string file;                         // apply
  bool dry_run = false;                     // apply
  std::string name;                         // describe, but for layers
  std::uint32_t layer = 0;                  // describe layer, explain
  std::string deployment;                   // layers, plan, explain; empty: the only one
  v1::Phase phase = v1::PHASE_UNSPECIFIED;  // explain
  std::string edge_source;                  // explain; empty: all edges of the plan
  std::string edge_worker;                  // explain; there when edge_source is
  std::string path;                         // model inspect
  std::optional<std::int32_t> only_layer;   // model inspect
  std::string worker_kind;                  // model inspect; empty: all kinds
  bool client_only = false;                 // version
};

// Without `line` there is nothing to do but to print `text` and to exit: 0 after --help, 2 when the
// words are wrong. Then `text` says which, the nearest right one, and where the help is.
struct ParsedCommandLine {
  std::optional<CommandLine> line;
  int exit_code = 0;
  std::string text;
};
// `words`: without the program's name.
ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words);

}  // namespace switchyard::ctl
