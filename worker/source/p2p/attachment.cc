#include "worker/source/p2p/attachment.h"

#include <algorithm>
#include <utility>

namespace switchyard {

void SessionEvents::Push(SessionEvent event) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::holds_alternative<PlanEvent>(event)) {
      // A newer plan makes an older one that nobody has looked at pointless.
      std::erase_if(events_,
                    [](const SessionEvent& old) { return std::holds_alternative<PlanEvent>(old); });
    }
    events_.push_back(std::move(event));
  }
  wake_();
}

void SessionEvents::Take(std::vector<SessionEvent>* out) {
  out->clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  out->swap(events_);
}

void AttachEvents::OnAttached(const AttachGrant& grant) {
  events_->Push(AttachedEvent{serial_, grant});
}

void AttachEvents::OnBound(Epoch epoch, const absl::Status& result) {
  events_->Push(BoundEvent{serial_, epoch, result});
}

void AttachEvents::OnAttachEnded(const absl::Status& why) {
  events_->Push(AttachEndedEvent{serial_, why});
}

void Attachment::AbsorbCounts(const Attachment& ended) {
  frames_sent += ended.frames_sent;
  replies_late += ended.replies_late;
  replies_unexpected += ended.replies_unexpected;
}

void Attachment::Close() {
  stream.reset();  // First: afterwards its sink is silent.
  sink.reset();
  if (link != nullptr) link->Close();
  link.reset();
  pairs = CreditTable(0);
}

}  // namespace switchyard
