// The transport within one process: rings are plain memory, and doorbells go through a queue with a
// mutex. See worker/transport/transport.h for the contract. The only difference is that Progress
// and Send lock that mutex.
//
// Each transport belongs to its own thread (or its owner's mutex), and its peers to theirs.
// Deployments within one process and tests use it. It is also the shortest example of a transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/transport/inbox.h"
#include "worker/transport/loopback/hub.h"
#include "worker/transport/loopback/mailbox.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct LoopbackOptions {
  Incarnation incarnation{};   // of the (possibly simulated) process
  Duration busy_poll{};        // see Sleeper
  LoopbackHub* hub = nullptr;  // required; must outlive the transport
};

class LoopbackLink;

class LoopbackTransport final : public Transport {
 public:
  // Errors: kInvalidArgument (BAD_CONFIG) without a hub; kResourceExhausted without descriptors.
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const LoopbackOptions& options);
  // Closes the remaining links; links to this transport go down at the other end.
  ~LoopbackTransport() override;

  absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) override;
  // Progress never runs longer than the mail that has arrived at its start.
  bool Progress(FrameSink& sink) override;
  bool Arm() override;
  void Wait(Duration max) override { place_.mailbox->sleeper().Wait(max); }
  void Wake() override { place_.mailbox->sleeper().Wake(); }
  void CountDrop(FrameDrop drop) override { inbox_.CountDrop(drop); }
  [[nodiscard]] MemoryKind slot_memory() const override { return MemoryKind::kHost; }
  [[nodiscard]] TransportStats stats() const override;

 private:
  // Links register and remove themselves.
  friend class LoopbackLink;

  explicit LoopbackTransport(const LoopbackOptions& options) : options_(options) {}
  // Calls OnLinkDown for every link whose peer has died. True if there was one.
  bool ReportLinksDown(FrameSink& sink);

  const LoopbackOptions options_;
  LoopbackHub::Place place_;
  Inbox inbox_;
  // Swapped with the mailbox's own, see LoopbackMailbox::Mail.
  LoopbackMailbox::Mail mail_;
  std::vector<LoopbackLink*> links_;  // the open ones; each removes itself on Close
  std::uint64_t frames_out_ = 0;
  std::uint64_t late_wakes_ = 0;
  std::uint64_t ring_bytes_ = 0;
};

}  // namespace switchyard
