// Provides the MoE functions of the programs. The only place that knows all kinds of providers.
#pragma once

#include <chrono>
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

// Counters that both sides of a comparison have. Bytes are those of rows and scales on the wire.
// The traffic of one worker.
struct WorkerCounts {
  std::uint64_t rows = 0;
  std::uint64_t request_bytes = 0;
  std::uint64_t reply_bytes = 0;
  std::uint64_t expert_hits = 0;
};

// The traffic and checks of one worker.
struct WorkerReport {
  std::string worker;
  std::string path;        // how rows traveled: "mapped", "messages", "grpc", "inproc"
  WorkerCounts predicted;  // by routing and placement
  WorkerCounts counted;    // by the worker, only for this client's sessions
  // One sentence for each difference from the prediction or the options; empty if there is none.
  std::vector<std::string> differences;
};

// The traffic to the experts since the provider was opened.
struct ExpertsReport {
  std::string how;                    // one line for people, e.g. "reference, in this process"
  std::vector<WorkerReport> workers;  // empty without workers
  // The configs for rows of prompts, one for each layer and edge; empty without workers.
  std::vector<DispatchConfig> prefill = {};
  // Why the workers' counts were not compared with the prediction; empty if they were.
  std::string not_compared = {};
  // Rows of each expert as counted by the workers, for all sessions; not merged.
  std::vector<AttachmentCounters::Hit> hits = {};
};

// Access to the routed experts. Not thread-safe.
class MoeProvider {
 public:
  virtual ~MoeProvider() = default;

  // The paths for prompts and for single tokens, valid as long as the provider.
  [[nodiscard]] virtual const MoePath& prefill() const = 0;
  [[nodiscard]] virtual const MoePath& decode() const = 0;
  // Placement and dispatch configs with their reasons, for people; empty if there are none.
  [[nodiscard]] virtual std::string Describe() const { return ""; }
  // Gets the workers' counters for the calls so far. Where they cannot be compared, because the
  // plan changed or a step was repeated, the report says so and is no error.
  virtual absl::StatusOr<ExpertsReport> Report() = 0;
};

// Long enough for the experts of a lost worker to be loaded elsewhere.
inline constexpr Duration kRetryForDefault = std::chrono::seconds(60);

// Options of a provider, as given on the command line.
struct MoeOptions {
  std::string moe = "deployment";  // or "reference", which runs in this process
  // The other options are for deployments. `target` is "host:port" of a running deployment's
  // coordinator; if it is empty, the provider starts a deployment and stops it at its own end.
  std::string target{};
  std::string tls_dir{};     // for mutual TLS with it, as in ClientOptions
  std::string deployment{};  // its name at `target`; may be empty if there is only one
  // Or the name of the model at `target`, which may have a deployment for each phase.
  std::string served_model{};
  std::int32_t workers = 4;  // number of workers to start
  // Or "shm", "tcp", "gateway", "group" (binding collective); without `target` also "loopback".
  std::string transport = "auto";
  // The client's device with "group", as in ClientOptions; empty: that of the first worker to
  // start, else memory of the host.
  std::string client_device{};
  // "normal", "low_latency", "auto" (normal for prompts, low_latency for single tokens); empty: the
  // plan's modes.
  std::string mode{};
  // Dtype of rows for a deployment that is started: "auto", "bf16", "fp8", "int8", "nvfp4"; empty:
  // the default.
  std::string dispatcher_output_dtype{};
  // Devices of the workers to start (harness/worker_devices.h).
  std::string device = "cpu";
  Duration retry_for = kRetryForDefault;  // of a step that another attempt can mend; 0: never
  bool record_amax = false;  // hits carry the largest magnitudes; p2p and loopback only
  std::string bin_dir{};     // folder of the service programs; empty: this program's folder
};

// Errors: kInvalidArgument (BAD_REQUEST) for an unknown kind; kUnimplemented (UNSUPPORTED) for
// record_amax with the reference; those of the provider.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenMoe(const Checkpoint& checkpoint,
                                                     const DecoderDims& dims,
                                                     const MoeOptions& options);

}  // namespace switchyard::qwen3_moe
