#include "ctl/doctor/doctor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "core/base/units.h"
#include "ctl/doctor/node_checks.h"
#include "ctl/doctor/node_probe.h"
#include "ctl/doctor/service_checks.h"
#include "ctl/doctor/service_probe.h"

namespace switchyard::ctl {
namespace {

bool Failed(const std::vector<Check>& checks, absl::string_view name) {
  return std::any_of(checks.begin(), checks.end(), [name](const Check& check) {
    return check.name == name && check.verdict == Verdict::kFail;
  });
}

std::string ReadBytesOption(std::string& text) {
  const auto bytes = ParseBytes(text);
  if (!bytes.has_value()) {
    return absl::StrCat("\"", text, "\" is no number of bytes, such as ", kBytesExamples);
  }
  text = absl::StrCat(*bytes);
  return "";
}

}  // namespace

std::vector<Check> Examine(const DoctorOptions& options, const std::string& tls_dir,
                           const ServiceCalls& calls, Duration all) {
  const Budget budget(all);
  const NodeFacts node = ProbeNode(
      {.ring_dirs = options.ring_dirs, .checkpoints = options.checkpoints, .tls_dir = tls_dir},
      budget);
  std::vector<Check> checks =
      NodeChecks(node, {.shm_bytes = options.shm_bytes, .rdma = options.rdma});
  if (options.node_only) return checks;
  // Without its certificate, a connection would say less than the certificate's own line.
  const bool unknown = !tls_dir.empty() && calls.security == nullptr;
  const bool blocked = unknown || Failed(checks, kCertificateCheck);
  std::vector<Check> more =
      blocked ? ServiceSkipped("not looked at: certificate comes first", "put certificate right")
              : ServiceChecks(ProbeService(calls, budget));
  std::move(more.begin(), more.end(), std::back_inserter(checks));
  return checks;
}

void AddDoctorVerb(CLI::App& app, DoctorOptions* options) {
  CLI::App* verb = app.add_subcommand(
      "doctor", "Check this machine or Pod, and the way from here to coordinator and workers");
  verb->add_option_function<std::string>(
          "--scope", [options](const std::string& scope) { options->node_only = scope == "node"; },
          "All checks, or only those that need no network, as for an init container")
      ->check(CLI::IsMember({"node", "all"}))
      ->default_str("all");
  verb->add_option("--shm-bytes", options->shm_bytes,
                   "What the engine's libraries need in /dev/shm, such as 1GiB")
      ->transform(CLI::Validator(&ReadBytesOption, ""))
      ->type_name("BYTES");
  verb->add_flag("--rdma", options->rdma, "Memory will be locked for RDMA");
  verb->add_option("--checkpoint", options->checkpoints,
                   "A checkpoint's folder: no file is missing or short; may be repeated")
      ->allow_extra_args(false);
  verb->add_option("--ring-dir", options->ring_dirs,
                   "The --ring-dir of workers and engines here; may be repeated")
      ->allow_extra_args(false);
  verb->footer(
      "Each line is OK, WARN, FAIL or SKIP; all but OK say what to do next, and where that is\n"
      "explained. What depends on a check that fails is skipped. It changes nothing.\n"
      "Exit codes: 0 nothing fails, 1 a check fails, 2 usage error. --timeout: of all checks\n"
      "together (default 30s); a call takes 5 s at most, a name or a worker 2 s.\n"
      "Examples:\n"
      "  syctl doctor\n"
      "  syctl doctor --scope node --checkpoint /models/qwen3-moe --shm-bytes 1GiB\n"
      "  syctl doctor --target coordinator:7700 --tls-dir certs/operator -o json\n");
}

}  // namespace switchyard::ctl
