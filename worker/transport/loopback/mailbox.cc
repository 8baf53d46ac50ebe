#include "worker/transport/loopback/mailbox.h"

#include <cstring>
#include <new>
#include <utility>

namespace switchyard {
namespace {

// A page, as in a mapped ring: kernels may rely on the same alignment with both transports.
constexpr std::align_val_t kRingAlign{4096};

}  // namespace

// Writes every page now, so that no step pays for page faults.
LoopbackRing::LoopbackRing(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kRingAlign, std::nothrow));
  if (memory == nullptr) return;
  memory_ = {memory, bytes};
  std::memset(memory_.data(), 0, memory_.size());
}

LoopbackRing::~LoopbackRing() { ::operator delete(memory_.data(), kRingAlign); }

void LoopbackMailbox::AddRing(AttachmentId attachment, std::shared_ptr<LoopbackRing> ring,
                              std::uint32_t slots, Mail* mail) {
  const MutexLock lock(mutex_);
  rings_[attachment] = {std::move(ring), slots};
  doorbells_max_ += slots;
  // Both sides of the swap in Drain need the room, or PutDoorbell would allocate.
  for (Mail* each : {&mail_, mail}) {
    each->doorbells.reserve(doorbells_max_);
    each->links_down.reserve(rings_.size());
  }
}

void LoopbackMailbox::RemoveRing(AttachmentId attachment) {
  const MutexLock lock(mutex_);
  const auto found = rings_.find(attachment);
  if (found == rings_.end()) return;
  doorbells_max_ -= found->second.slots;
  rings_.erase(found);
}

void LoopbackMailbox::Drain(Mail* mail) {
  // Cleared before the lock: peers then wait only for the swap.
  mail->doorbells.clear();
  mail->links_down.clear();
  mail->overflow = 0;
  const MutexLock lock(mutex_);
  std::swap(*mail, mail_);
}

bool LoopbackMailbox::HasMail() {
  const MutexLock lock(mutex_);
  return !mail_.doorbells.empty() || !mail_.links_down.empty() || mail_.overflow > 0;
}

bool LoopbackMailbox::PutDoorbell(const HeaderBytes& header) {
  {
    const MutexLock lock(mutex_);
    if (dead_) return false;
    if (mail_.doorbells.size() < doorbells_max_) {
      mail_.doorbells.push_back(header);
    } else {
      // More doorbells than slots mean that the peer ignores its credits. Growing the queue would
      // let it exhaust our memory.
      ++mail_.overflow;
    }
  }
  sleeper_->Wake();
  return true;
}

std::shared_ptr<LoopbackRing> LoopbackMailbox::FindRing(AttachmentId attachment) {
  const MutexLock lock(mutex_);
  const auto found = rings_.find(attachment);
  return dead_ || found == rings_.end() ? nullptr : found->second.ring;
}

bool LoopbackMailbox::Watch(const std::shared_ptr<LoopbackMailbox>& watcher,
                            AttachmentId attachment) {
  const MutexLock lock(mutex_);
  if (dead_) return false;
  watchers_.push_back({watcher, watcher.get(), attachment});
  return true;
}

void LoopbackMailbox::Unwatch(const LoopbackMailbox* watcher, AttachmentId attachment) {
  const MutexLock lock(mutex_);
  std::erase_if(watchers_, [&](const Watcher& each) {
    return each.identity == watcher && each.attachment == attachment;
  });
}

// Notifies the watchers without holding the mutex: two mailboxes that watch each other and die at
// the same time would otherwise deadlock.
void LoopbackMailbox::Die() {
  std::vector<Watcher> watchers;
  {
    const MutexLock lock(mutex_);
    dead_ = true;
    watchers.swap(watchers_);
  }
  for (const Watcher& watcher : watchers) {
    if (const auto mailbox = watcher.mailbox.lock()) mailbox->ReportDown(watcher.attachment);
  }
}

bool LoopbackMailbox::dead() {
  const MutexLock lock(mutex_);
  return dead_;
}

void LoopbackMailbox::ReportDown(AttachmentId attachment) {
  {
    const MutexLock lock(mutex_);
    mail_.links_down.push_back(attachment);
  }
  // Woken without the mutex, so that the owner does not wake up only to wait for it.
  sleeper_->Wake();
}

}  // namespace switchyard
