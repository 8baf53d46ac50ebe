#include "worker/transport/loopback/transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/loopback/link.h"
#include "worker/transport/ring_geometry.h"

namespace switchyard {

absl::StatusOr<std::unique_ptr<Transport>> LoopbackTransport::Create(
    const LoopbackOptions& options) {
  if (options.hub == nullptr) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     "transport loopback: no hub is given; pass the hub of this process");
  }
  std::unique_ptr<LoopbackTransport> transport(new LoopbackTransport(options));
  SY_ASSIGN_OR_RETURN(transport->place_, options.hub->Open(options.busy_poll));
  return transport;
}

LoopbackTransport::~LoopbackTransport() {
  while (!links_.empty()) links_.back()->Close();
  if (place_.mailbox == nullptr) return;
  // Forget first, so that no new link to this transport is made; then notify the existing ones.
  options_.hub->Forget(place_.address);
  place_.mailbox->Die();
}

absl::StatusOr<std::unique_ptr<Link>> LoopbackTransport::CreateLink(const LinkOptions& options) {
  LinkOptions rounded = options;
  SY_RETURN_IF_ERROR(RoundRing(&rounded));
  if (options.choice != TransportChoice::kAuto && options.choice != TransportChoice::kInProcess) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     "transport loopback: shm and tcp need transport ucx; use auto or inproc");
  }
  auto ring = std::make_shared<LoopbackRing>(RingBytesOf(rounded));
  if (ring->memory().empty()) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("transport loopback: no memory for a ring of ",
                                  RingBytesOf(rounded), " bytes; use fewer or smaller slots"));
  }
  return std::make_unique<LoopbackLink>(this, rounded, std::move(ring));
}

bool LoopbackTransport::ReportLinksDown(FrameSink& sink) {
  bool any = false;
  for (std::size_t i = 0; i < mail_.links_down.size(); ++i) {
    const AttachmentId attachment = mail_.links_down[i];
    // Search again each time, because the sink may have closed any link in the previous round.
    const auto link = std::ranges::find_if(
        links_, [&](const LoopbackLink* each) { return each->offer().attachment == attachment; });
    if (link == links_.end() || !(*link)->MarkDown()) continue;
    sink.OnLinkDown(**link, (*link)->DownError());
    any = true;
  }
  return any;
}

bool LoopbackTransport::Progress(FrameSink& sink) {
  place_.mailbox->Drain(&mail_);
  for (const HeaderBytes& header : mail_.doorbells) inbox_.OnDoorbell(header);
  for (std::uint64_t i = 0; i < mail_.overflow; ++i) inbox_.CountDrop(FrameDrop::kSlot);
  // Frames that arrived before a peer died are still delivered, so links go down after Deliver.
  const bool delivered = inbox_.Deliver(sink);
  const bool reported = ReportLinksDown(sink);
  if (place_.mailbox->sleeper().TakeTimeout() && (delivered || reported)) ++late_wakes_;
  // A doorbell that was dropped still counts as progress, so that the caller looks again.
  return delivered || reported || !mail_.doorbells.empty();
}

bool LoopbackTransport::Arm() {
  if (inbox_.HasReady() || place_.mailbox->HasMail()) return false;
  Sleeper& sleeper = place_.mailbox->sleeper();
  return !sleeper.BusyPolls(inbox_.frames_in() + frames_out_) && sleeper.Arm();
}

TransportStats LoopbackTransport::stats() const {
  TransportStats stats;
  stats.drops = inbox_.drops();
  stats.frames_in = inbox_.frames_in();
  stats.frames_out = frames_out_;
  stats.late_wakes = late_wakes_;
  stats.links_open = links_.size();
  stats.ring_bytes = ring_bytes_;
  return stats;
}

}  // namespace switchyard
