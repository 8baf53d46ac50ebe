// Carries the messages of one rank of a group (exchange/messages.h) to the other ranks, and theirs
// to it, in the order of a stream.
//
//   Make -> key ... the keys of all ranks, by whatever carries them -> Join -> { Carry }* -> Abort
//
// One thread at a time, but for Abort.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/messages.h"

namespace switchyard {

class MessageGroup {
 public:
  // Ends as Abort does. No message is on its way.
  virtual ~MessageGroup() = default;

  // For the other ranks' Join; who has it can take part in the group, so it is never logged.
  [[nodiscard]] virtual const std::string& key() const = 0;
  // Begins to reach the other ranks, and returns: `keys` by rank. Once. Errors: kInvalidArgument
  // (BAD_REQUEST) for keys that are none; kUnavailable (WORKER_LOST) if it cannot be begun.
  virtual absl::Status Join(std::span<const std::string> keys) = 0;
  // Enqueues what travels in one exchange: all ranks call it alike. Parts of `outbox` go out, and
  // what the others send is in `heap` when the stream goes on. The first call waits until all ranks
  // have reached each other. REQUIRES: Join has succeeded. Errors: kUnavailable (WORKER_LOST) after
  // Abort, for ranks that cannot be reached in time, and for a fault of the library; all later
  // calls fail then too.
  virtual absl::Status Carry(const cuda::Messages& messages, const std::byte* outbox,
                             std::byte* heap, cudaStream_t stream) = 0;
  // Ends the waits for messages that are on their way, which are then there in part or not at all;
  // later calls of Carry fail. From any thread; takes seconds at most.
  virtual void Abort() = 0;
};

}  // namespace switchyard
