#include "worker/collective/shared_log.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

// A ring of one slot that holds the log: its file is sealed, sized and recognized as every ring's.
RingShape Shape() {
  const std::size_t bytes = (StepLog::Bytes() + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
  return {.slots = 1, .slot_bytes = static_cast<std::uint32_t>(bytes)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedLog>> SharedLog::Make(const std::string& directory, Rng* rng) {
  std::unique_ptr<SharedLog> shared(new SharedLog());
  const RingKey key{.tag = rng->Next(),
                    .socket = rng->NextId<SocketName>(),
                    .secret = rng->NextId<RingSecret>(),
                    .in_directory = !directory.empty()};
  SY_ASSIGN_OR_RETURN(shared->own_,
                      InboundRing::Allocate(InboundRing::Kind::kMapped, Shape(), key.tag));
  shared->log_ = StepLog::Make(shared->own_.memory());
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("the log of a group's steps: pipe2 failed with errno ", errno,
                                  "; raise the limit of open files"));
  }
  shared->wake_ = Descriptor(pipe[1]);
  const Descriptor unused(pipe[0]);
  SY_ASSIGN_OR_RETURN(shared->server_, RingServer::Start(directory, key.socket));
  shared->server_->Offer(key.secret, shared->own_.file(), shared->wake_.get());
  shared->key_ = SealRingKey(key);
  return shared;
}

absl::StatusOr<std::unique_ptr<SharedLog>> SharedLog::Open(absl::string_view key,
                                                           const std::string& directory) {
  std::unique_ptr<SharedLog> shared(new SharedLog());
  SY_ASSIGN_OR_RETURN(const RingKey opened, OpenRingKey(key));
  SY_ASSIGN_OR_RETURN(RingVisit visit, RingVisit::Make(opened, directory));
  SY_ASSIGN_OR_RETURN(shared->peer_, PeerRing::Map(visit.TakeParts(), Shape(), opened.tag));
  shared->log_ = StepLog::View(shared->peer_.memory());
  if (shared->log_.layout() != StepLog::kLayout) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrFormat("the log of a group's steps has layout %d, and this process "
                                     "reads %d; run one release in all processes of a group",
                                     shared->log_.layout(), StepLog::kLayout));
  }
  shared->key_ = std::string(key);
  return shared;
}

}  // namespace switchyard
