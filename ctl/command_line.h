// Parses the command line of syctl. Pure; thread-safe.
//
//   syctl apply -f FILE [--dry-run] [--wait]
//   syctl diff -f FILE
//   syctl rollback deployment NAME [--to-revision N] [--wait]
//   syctl delete deployment NAME [--now] [--wait]
//   syctl cordon|uncordon worker ID [--wait]
//   syctl drain worker ID [--force] [--wait]
//   syctl wait deployment NAME --for serving|deleted
//   syctl wait worker ID --for live|drained
//   syctl get deployments|models|workers [NAME] [-w]
//   syctl get layers|plan|revisions|sessions [DEPLOYMENT] [-w]
//   syctl get events [NAME] [-w]
//   syctl get metrics [coordinator|WORKER] [-w]
//   syctl top [WORKER] [-w]
//   syctl traces [--listen HOST:PORT] [--count N]
//   syctl describe deployment|model|worker|layer NAME
//   syctl explain layer N [--phase P] [--edge SOURCE:WORKER]
//   syctl model inspect PATH [--layer N] [--worker-kind K]
//   syctl model buffers PATH [--ranks N] [--tokens M] [--hccl-buffsize MB]
//   syctl certs ensure|show DIR
//   syctl doctor [--scope node] [--checkpoint DIR] [--shm-bytes N] [--rdma]
//   syctl config get-contexts|current-context|use-context|set-context|delete-context [NAME]
//   syctl version [--client]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/cli/default_address.h"
#include "ctl/certs/certs.h"
#include "ctl/doctor/doctor.h"
#include "ctl/output/format.h"
#include "ctl/sizing/buffers.h"
#include "ctl/waiting.h"
#include "switchyard/v1/types.pb.h"

namespace switchyard::ctl {

inline constexpr const char* kDefaultTarget = kDefaultCoordinator;

// The first word of a command.
enum class Verb {
  kApply,
  kDiff,
  kRollback,
  kDelete,
  kCordon,
  kUncordon,
  kDrain,
  kWait,
  kGet,
  kTop,
  kTraces,
  kDescribe,
  kExplain,
  kModelInspect,
  kModelBuffers,
  kCerts,
  kDoctor,
  kConfig,
  kVersion
};
// The objects that get and describe show.
enum class Kind {
  kDeployments,
  kModels,
  kWorkers,
  kLayers,
  kPlan,
  kRevisions,
  kSessions,
  kEvents,
  kMetrics
};
enum class Color { kAuto, kAlways, kNever };
// The verbs of 'config'.
enum class ConfigVerb { kGetContexts, kCurrentContext, kUseContext, kSetContext, kDeleteContext };

// A valid command. Fields that its verb does not use keep their defaults.
struct CommandLine {
  Verb verb = Verb::kVersion;
  Kind kind = Kind::kDeployments;  // get, describe and wait
  std::string target = kDefaultTarget;
  bool target_given = false;
  std::string tls_dir;                 // empty: nothing is encrypted
  std::string context;                 // empty: the current one
  std::optional<OutputFormat> output;  // unset: table on a terminal, else JSON
  std::string json_path;               // of -o jsonpath=; it was checked
  bool no_headers = false;             // get, top
  std::string sort_by;                 // get; a JSONPath that was checked
  Color color = Color::kAuto;
  Duration timeout{};                         // for each call
  Duration wait_timeout{};                    // for wait, --wait and doctor as a whole
  std::string file;                           // apply, diff
  bool dry_run = false;                       // apply
  std::string name;                           // an object's, except layers
  bool wait = false;                          // verbs that change something
  std::uint64_t to_revision = 0;              // rollback; 0: the one before that has served
  bool now = false;                           // delete
  bool force = false;                         // drain
  bool watch = false;                         // get, top
  Condition condition = Condition::kServing;  // wait
  std::uint32_t layer = 0;                    // describe layer, explain
  std::string deployment;                     // of a plan or a revision; may be empty if only one
  v1::Phase phase = v1::PHASE_UNSPECIFIED;    // explain
  std::string edge_source;                    // explain; empty: all edges of the plan
  std::string edge_worker;                    // explain; set together with edge_source
  std::string path;                           // model inspect
  CertsOptions certs;                         // certs
  DoctorOptions doctor;                       // doctor
  BufferOptions buffers;                      // model buffers
  std::optional<std::int32_t> only_layer;     // model inspect
  std::string worker_kind;                    // model inspect; empty: all kinds
  bool client_only = false;                   // version
  std::string listen = "127.0.0.1:4317";      // traces; the port of collectors
  std::uint64_t count = 0;                    // traces; 0: no end
  std::string contexts_path;                  // config
  ConfigVerb config_verb = ConfigVerb::kGetContexts;  // config, with the context in `name`
};

// The result of parsing. Without `line`, the program prints `text` and exits with `exit_code`: 0
// after --help, 2 after a usage error. The text of an error has the wrong argument, the nearest
// valid one and the help command.
struct ParsedCommandLine {
  std::optional<CommandLine> line;
  int exit_code = 0;
  std::string text;
};
// `words`: the arguments without the program's name.
ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words);

}  // namespace switchyard::ctl
