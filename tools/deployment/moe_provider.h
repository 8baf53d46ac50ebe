// Where the mains get their MoE functions from: the one place that knows the kinds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/dispatch_config.h"
#include "core/session_messages.h"
#include "examples/qwen3_moe/decoder_weights.h"
#include "examples/qwen3_moe/moe_call.h"
#include "model/checkpoint.h"

namespace switchyard::qwen3_moe {

// What one worker was sent, as counted.
struct WorkerCounts {
  std::uint64_t rows = 0;
  std::uint64_t request_bytes = 0;
  std::uint64_t reply_bytes = 0;
  std::uint64_t expert_hits = 0;
};

struct WorkerReport {
  std::string worker;
  std::string path;        // how rows travelled: "mapped", "messages", "grpc", "inproc"
  WorkerCounts predicted;  // by routing and placement
  WorkerCounts counted;    // by the worker, for this client's sessions alone
  // One sentence for each thing that is not as predicted or not as asked; empty when all is well.
  std::vector<std::string> differences;
};

// How the experts were reached since the provider was opened.
struct ExpertsReport {
  std::string how;                    // one line for people, such as "reference, in this process"
  std::vector<WorkerReport> workers;  // none when no worker was involved
  // How rows of prompts travelled, a config for each layer and edge; none without workers.
  std::vector<DispatchConfig> prefill = {};
  // What each expert was given, as the workers of all sessions counted; not merged.
  std::vector<AttachmentCounters::Hit> hits = {};
};

// Not thread-safe: one call at a time.
class MoeProvider {
 public:
  virtual ~MoeProvider() = default;

  // The paths for prompts and for single tokens; they live as long as the provider.
  [[nodiscard]] virtual const MoePath& prefill() const = 0;
  [[nodiscard]] virtual const MoePath& decode() const = 0;
  // Placement and dispatch configs with their reasons, for people; empty when there are none.
  [[nodiscard]] virtual std::string Describe() const { return ""; }
  // Asks the workers for their counts of the calls made so far.
  virtual absl::StatusOr<ExpertsReport> Report() = 0;
};

struct MoeOptions {
  std::string moe = "deployment";  // or "reference", in this process
  // The rest is for deployments. A running one, by its coordinator's "host:port"; empty: one of our
  // own, for as long as the provider lives.
  std::string target{};
  std::string deployment{};        // its name there; empty: the only one
  std::int32_t workers = 4;        // of our own
  std::string transport = "auto";  // or "shm", "tcp", "gateway"; of our own also "loopback"
  // "normal", "low_latency", "auto" (prompts normal, single tokens low_latency); empty: the plan's
  // for each phase.
  std::string mode{};
  // What our own is asked for: "auto", "bf16", "fp8", "int8", "nvfp4"; empty: nothing.
  std::string dispatcher_output_dtype{};
  bool record_amax = false;  // hits carry the largest magnitudes; p2p and loopback only
  std::string bin_dir{};     // of switchyard-coordinator and -worker; empty: this program's
};

// Errors: kInvalidArgument (BAD_REQUEST) for an unknown kind; kUnimplemented (UNSUPPORTED) for
// magnitudes of the reference; those of the kind.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenMoe(const Checkpoint& checkpoint,
                                                     const DecoderDims& dims,
                                                     const MoeOptions& options);

}  // namespace switchyard::qwen3_moe
