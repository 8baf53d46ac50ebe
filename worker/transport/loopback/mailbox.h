// A loopback transport's mailbox: the part of it that peers on other threads may access.
//
// Peers write payloads into rings that they hold by shared_ptr, so a ring exists as long as a peer
// can still write to it. Doorbells and reports of broken links go through the mutex, which also
// makes a payload visible before its doorbell. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "core/base/mutex.h"
#include "core/ids.h"
#include "worker/transport/frame.h"
#include "worker/transport/sleeper.h"

namespace switchyard {

// The memory of one inbound ring, page-aligned and zeroed. Empty if there is no memory for it.
class LoopbackRing {
 public:
  explicit LoopbackRing(std::size_t bytes);
  LoopbackRing(const LoopbackRing&) = delete;
  LoopbackRing& operator=(const LoopbackRing&) = delete;
  ~LoopbackRing();
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

 private:
  std::span<std::byte> memory_;
};

// One transport's mailbox. The functions of owner and peers may run at the same time.
class LoopbackMailbox {
 public:
  // Everything that arrived since the last Drain. Drain swaps the vectors with the mailbox's own,
  // so that neither side allocates.
  struct Mail {
    std::vector<HeaderBytes> doorbells;
    std::vector<AttachmentId> links_down;
    std::uint64_t overflow = 0;  // doorbells dropped because there were more than slots
  };

  explicit LoopbackMailbox(std::unique_ptr<Sleeper> sleeper) : sleeper_(std::move(sleeper)) {}

  // For the owner. AddRing reserves room in the mailbox and in `mail`, so that later calls do not
  // allocate.
  void AddRing(AttachmentId attachment, std::shared_ptr<LoopbackRing> ring, std::uint32_t slots,
               Mail* mail);
  // Forgets the ring. Peers that hold it can still write to it, but their doorbells are dropped by
  // the inbox.
  void RemoveRing(AttachmentId attachment);
  // Moves everything that arrived into `mail`, whose previous content is dropped.
  void Drain(Mail* mail);
  // Whether Drain would return anything. For Arm.
  [[nodiscard]] bool HasMail();
  [[nodiscard]] Sleeper& sleeper() { return *sleeper_; }

  // For the peers. False or null if the owner is dead or has no such ring.
  // Queues a doorbell and wakes the owner.
  bool PutDoorbell(const HeaderBytes& header);
  std::shared_ptr<LoopbackRing> FindRing(AttachmentId attachment);
  // When the owner dies, `attachment` is added to the links_down of `watcher`. False if the owner
  // is dead already.
  bool Watch(const std::shared_ptr<LoopbackMailbox>& watcher, AttachmentId attachment);
  // Undoes Watch. Idempotent.
  void Unwatch(const LoopbackMailbox* watcher, AttachmentId attachment);

  // Stops accepting mail and notifies the watchers. Idempotent.
  void Die();
  [[nodiscard]] bool dead();

 private:
  // A link at a peer. Weak, because two transports with links to each other would otherwise keep
  // each other's mailboxes alive.
  struct Watcher {
    // Another transport's mailbox and the number of its link.
    std::weak_ptr<LoopbackMailbox> mailbox;
    const LoopbackMailbox* identity = nullptr;  // only compared; `mailbox` may have expired
    AttachmentId attachment;
  };
  // A ring with the number of its slots, which bounds its doorbells.
  struct RingSlots {
    std::shared_ptr<LoopbackRing> ring;
    std::uint32_t slots = 0;
  };
  // Adds a broken link to this mailbox and wakes its owner.
  void ReportDown(AttachmentId attachment);

  const std::unique_ptr<Sleeper> sleeper_;
  Mutex mutex_;
  bool dead_ SY_GUARDED_BY(mutex_) = false;
  std::size_t doorbells_max_ SY_GUARDED_BY(mutex_) = 0;  // slots of all rings
  Mail mail_ SY_GUARDED_BY(mutex_);
  absl::flat_hash_map<AttachmentId, RingSlots> rings_ SY_GUARDED_BY(mutex_);
  std::vector<Watcher> watchers_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
