// Plan updates as bytes, encoded once for all of their watchers.
//
// A plan of 61 layers x 256 experts takes milliseconds to encode, and thousands of sources may
// watch it; the driver's thread, which also renews leases, must not do that for each of them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"

#include "core/base/mutex.h"
#include "core/session_messages.h"

namespace switchyard {

// Thread-safe.
class EncodedPlans {
 public:
  // The encoded v1.WatchPlanResponse; a copy shares its memory. Errors: kResourceExhausted
  // (MESSAGE_TOO_LARGE) over kControlMessageBytesMax. Cost: the first call for an update encodes
  // it.
  absl::StatusOr<grpc::ByteBuffer> Of(const std::shared_ptr<const PlanUpdate>& update);

 private:
  struct Entry {
    std::weak_ptr<const PlanUpdate> update;  // weak: the bytes go when no one uses the plan
    absl::StatusOr<grpc::ByteBuffer> bytes;
  };

  Mutex mutex_;
  // At most one for each plan that is in use: the serving ones.
  std::vector<Entry> entries_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
