#include "services/coordinator/encoded_plans.h"

#include <utility>

#include "grpcpp/impl/codegen/proto_utils.h"

#include "services/convert/session.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {
namespace {

absl::StatusOr<grpc::ByteBuffer> Encoded(const PlanUpdate& update) {
  const v1::WatchPlanResponse proto = ToProto(update);
  if (const absl::Status size = CheckMessageSize(proto, kControlMessageBytesMax); !size.ok()) {
    return size;
  }
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status =
      grpc::SerializationTraits<v1::WatchPlanResponse>::Serialize(proto, &bytes, &own);
  if (!status.ok()) return StatusFromGrpc(status);
  return bytes;
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> EncodedPlans::Of(const std::shared_ptr<const PlanUpdate>& update) {
  const MutexLock lock(mutex_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.update.expired(); });
  for (const Entry& entry : entries_) {
    if (entry.update.lock() == update) return entry.bytes;
  }
  return entries_.emplace_back(Entry{update, Encoded(*update)}).bytes;
}

}  // namespace switchyard
