#include "worker/source/p2p/attachment.h"

#include <utility>

#include "worker/source/p2p/p2p_runner.h"

namespace switchyard {

void AttachEventQueue::Push(AttachEvent event) {
  const MutexLock lock(mutex_);
  events_.push_back(std::move(event));
  // With the lock, so that the runner is still there.
  if (wake_) wake_();
}

void AttachEventQueue::Close() {
  const MutexLock lock(mutex_);
  wake_ = nullptr;
}

void AttachEventQueue::Take(std::vector<AttachEvent>* out) {
  out->clear();
  // Swapped, not copied: both vectors keep their memory, so that an idle poll allocates nothing.
  const MutexLock lock(mutex_);
  out->swap(events_);
}

void AttachEvents::OnAttached(const AttachGrant& grant) {
  queue_->Push(AttachedEvent{serial_, grant});
}

void AttachEvents::OnBound(Epoch epoch, const absl::Status& result) {
  queue_->Push(BoundEvent{serial_, epoch, result});
}

void AttachEvents::OnAttachEnded(const absl::Status& why) {
  queue_->Push(AttachEndedEvent{serial_, why});
}

void Attachment::OnFrame(Link& /*from*/, const HeaderBytes& raw, const FrameHeader& header,
                         std::span<const std::byte> payload) {
  runner->OnFrame(*this, raw, header, payload);
}

void Attachment::OnLinkDown(Link& /*from*/, const absl::Status& why) {
  runner->OnLinkDown(*this, why);
}

void Attachment::AbsorbCounts(const Attachment& ended) {
  frames_sent += ended.frames_sent;
  replies_late += ended.replies_late;
  replies_unexpected += ended.replies_unexpected;
}

void Attachment::Close(Transport* transport) {
  // The stream first: afterwards its sink is silent and can go.
  stream.reset();
  sink.reset();
  memory.reset();  // the link frees it aside
  inbound_mapping.reset();
  outbound_mapping.reset();
  // Freeing memory of a device takes long.
  for (std::shared_ptr<DeviceRings>* rings : {&rings_ahead, &device_rings}) {
    if (*rings != nullptr) transport->RunAside([freed = std::exchange(*rings, nullptr)] {});
  }
  if (link != nullptr) link->Close();
  link.reset();
  // Credits that await replies are dropped, not freed: the worker may still write into the old
  // ring, which no later life of this attachment uses.
  credits = CreditTable(0);
}

}  // namespace switchyard
