// The data behind 'syctl model buffers': the memory that rows of a model's steps need in buffers of
// EP libraries, beside what our own rows take. For engines that size NVSHMEM's and HCCL's buffers
// before they start. Needs no coordinator and reads no weight. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

#include "core/cli/cli11.h"
#include "core/moe_shape.h"

namespace switchyard::ctl {

// The arguments of 'syctl model buffers'. All counts are > 0 unless a comment says otherwise.
struct BufferOptions {
  std::string path;
  std::int64_t ranks = 8;             // that share the experts
  std::int64_t tokens = 128;          // of a rank's step, low_latency
  std::int64_t normal_tokens = 4096;  // of a rank's step, normal
  std::int64_t sms = 20;              // of DeepEP's normal mode, even
  std::int64_t chunk = 256;           // its num_max_nvl_chunked_recv_tokens
  std::int64_t shared_experts = 0;    // that travel as routed ones do on NPUs; may be 0
  std::int64_t hccl_mb = 0;           // HCCL_BUFFSIZE of the workers; 0: not checked
};

// One buffer. The smallest that suffices, in bytes.
struct BufferNeed {
  std::string library;     // "switchyard", "deepep_v1", "hccl"
  std::string buffer;      // what it holds
  std::string mode;        // "low_latency", "normal"
  std::string dtype = {};  // of the rows it is sized for; empty: all dtypes alike
  std::int64_t bytes = 0;
  std::string remark = {};  // what to know before that size is used; may be empty
  absl::Status fits = {};   // of HCCL's windows, if hccl_mb is set
};

// The result.
struct BufferSizes {
  MoeShape shape;
  BufferOptions options;
  std::vector<BufferNeed> needs;  // by library, then mode
};

// Errors: those of SummarizeCheckpoint; kInvalidArgument (BAD_CONFIG) if the config has no top-k,
// ranks do not divide the experts, or `sms` is odd.
absl::StatusOr<BufferSizes> SizeBuffers(const BufferOptions& options);
// The same of a shape. Pure; as many additions as there are rows.
std::vector<BufferNeed> BuffersOf(const MoeShape& shape, const BufferOptions& options);

// OK, or the error of the first window that is too small: kFailedPrecondition (BAD_CONFIG).
absl::Status CheckWindows(const BufferSizes& sizes);

// A table of all needs, and an object with the same. Pure.
std::string BuffersText(const BufferSizes& sizes, std::size_t width);
nlohmann::ordered_json BuffersJson(const BufferSizes& sizes);

// Adds "buffers" below syctl's "model", and returns it. `options` outlives it.
CLI::App* AddBuffersVerb(CLI::App& model, BufferOptions* options);

}  // namespace switchyard::ctl
