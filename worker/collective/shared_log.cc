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
  shared->id_ = rng->Next();
  SY_ASSIGN_OR_RETURN(shared->own_,
                      InboundRing::Allocate(InboundRing::Kind::kMapped, Shape(), shared->id_));
  shared->log_ = StepLog::Make(shared->own_.memory());
  SY_RETURN_IF_ERROR(shared->Serve(directory, rng, shared->own_.file()));
  return shared;
}

absl::Status SharedLog::Serve(const std::string& directory, Rng* rng, int file) {
  const RingKey key{.tag = id_,
                    .socket = rng->NextId<SocketName>(),
                    .secret = rng->NextId<RingSecret>(),
                    .in_directory = !directory.empty()};
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("the log of a group's steps: pipe2 failed with errno ", errno,
                                  "; raise the limit of open files"));
  }
  wake_ = Descriptor(pipe[1]);
  const Descriptor unused(pipe[0]);
  SY_ASSIGN_OR_RETURN(server_, RingServer::Start(directory, key.socket));
  server_->Offer(key.secret, file, wake_.get());
  key_ = SealRingKey(key);
  return absl::OkStatus();
}

absl::Status SharedLog::Offer(const std::string& directory, Rng* rng) {
  return Serve(directory, rng, file_.get());
}

absl::StatusOr<std::uint64_t> SharedLog::IdOf(absl::string_view key) {
  SY_ASSIGN_OR_RETURN(const RingKey opened, OpenRingKey(key));
  return opened.tag;
}

absl::StatusOr<std::unique_ptr<SharedLog>> SharedLog::Open(absl::string_view key,
                                                           const std::string& directory) {
  std::unique_ptr<SharedLog> shared(new SharedLog());
  SY_ASSIGN_OR_RETURN(const RingKey opened, OpenRingKey(key));
  SY_ASSIGN_OR_RETURN(RingVisit visit, RingVisit::Make(opened, directory));
  RingParts parts = visit.TakeParts();
  shared->file_ = Descriptor(::fcntl(parts.file.get(), F_DUPFD_CLOEXEC, 0));
  if (!shared->file_.valid()) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kTransport,
        absl::StrCat("the log of a group's steps: its descriptor cannot be kept, errno ", errno,
                     "; raise the limit of open files"));
  }
  SY_ASSIGN_OR_RETURN(shared->peer_, PeerRing::Map(std::move(parts), Shape(), opened.tag));
  shared->log_ = StepLog::View(shared->peer_.memory());
  if (shared->log_.layout() != StepLog::kLayout) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrFormat("the log of a group's steps has layout %d, and this process "
                                     "reads %d; run one release in all processes of a group",
                                     shared->log_.layout(), StepLog::kLayout));
  }
  shared->key_ = std::string(key);
  shared->id_ = opened.tag;
  return shared;
}

}  // namespace switchyard
