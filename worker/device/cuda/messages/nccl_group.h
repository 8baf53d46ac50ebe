// Messages by NCCL's grouped ncclSend and ncclRecv, which find their own way: NVLink, PCIe or
// network. The library is loaded when the first group is made; nothing links it.
//
// The communicator is non-blocking: no call waits for another rank longer than it says here, and
// one that waits on the device ends by Abort. Its id is rank 0's key. With NCCL before 2.27 what
// one thread has begun in the background must be ended by the same one, which Abort is not.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/device/cuda/messages/message_group.h"

namespace switchyard {

struct NcclOptions {
  std::string library = "libnccl.so.2";  // as dlopen takes it
  // For what NCCL does in the background of a call: at first all ranks reach each other.
  Duration patience = std::chrono::seconds(30);
};

// The current device of the calling thread is the rank's, also in later calls. Errors:
// kUnimplemented (UNSUPPORTED) without NCCL of version 2.27 or later, saying what to install;
// kUnavailable (WORKER_LOST) if NCCL gives no id.
absl::StatusOr<std::unique_ptr<MessageGroup>> MakeNcclGroup(int ranks, int rank,
                                                            const NcclOptions& options);

}  // namespace switchyard
