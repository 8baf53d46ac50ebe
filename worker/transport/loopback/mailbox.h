// A loopback transport's mailbox: what its peers, in other threads, may touch of it.
//
// Peers write payloads into rings that they hold by shared_ptr, so a ring outlives its owner for as
// long as someone can still write there. Doorbells and news of death go through the mutex, which is
// also what makes a payload visible before its doorbell. Thread-safe.
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

// Zeroed memory of one inbound ring, page aligned.
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

class LoopbackMailbox {
 public:
  // What came since the last Drain. The vectors are swapped with the mailbox's own, so that neither
  // side allocates.
  struct Mail {
    std::vector<HeaderBytes> doorbells;
    std::vector<AttachmentId> links_down;
    std::uint64_t overflow = 0;  // doorbells beyond what the rings can hold: dropped
  };

  explicit LoopbackMailbox(std::unique_ptr<Sleeper> sleeper) : sleeper_(std::move(sleeper)) {}

  // The owner's side. AddRing makes room in both the mailbox and `mail`.
  void AddRing(AttachmentId attachment, std::shared_ptr<LoopbackRing> ring, std::uint32_t slots,
               Mail* mail);
  void RemoveRing(AttachmentId attachment);
  void Drain(Mail* mail);
  [[nodiscard]] bool HasMail();
  [[nodiscard]] Sleeper& sleeper() { return *sleeper_; }

  // The peers' side. False, or null, when the owner is dead or never had that ring.
  bool PutDoorbell(const HeaderBytes& header);
  std::shared_ptr<LoopbackRing> FindRing(AttachmentId attachment);
  // `watcher` gets `attachment` among its links_down when the owner dies.
  bool Watch(const std::shared_ptr<LoopbackMailbox>& watcher, AttachmentId attachment);
  void Unwatch(const LoopbackMailbox* watcher, AttachmentId attachment);

  // Takes no more mail and tells the watchers. Idempotent.
  void Die();
  [[nodiscard]] bool dead();

 private:
  struct Watcher {
    std::weak_ptr<LoopbackMailbox> mailbox;
    const LoopbackMailbox* identity = nullptr;
    AttachmentId attachment;
  };
  struct RingSlots {
    std::shared_ptr<LoopbackRing> ring;
    std::uint32_t slots = 0;
  };
  void TellDown(AttachmentId attachment);

  const std::unique_ptr<Sleeper> sleeper_;
  Mutex mutex_;
  bool dead_ SY_GUARDED_BY(mutex_) = false;
  std::size_t doorbells_max_ SY_GUARDED_BY(mutex_) = 0;  // slots of all rings
  Mail mail_ SY_GUARDED_BY(mutex_);
  absl::flat_hash_map<AttachmentId, RingSlots> rings_ SY_GUARDED_BY(mutex_);
  std::vector<Watcher> watchers_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
