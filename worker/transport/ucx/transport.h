// The transport over UCX: shared memory on one host, tcp anywhere. See
// worker/transport/transport.h.
//
// Every link has its own endpoint in error mode PEER, so that Progress can report a peer's death
// for each link. ucx/context.h describes the UCX objects, ucx/context.cc the settings and their
// reasons, ucx/outbox.h the messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/transport/doorbells.h"
#include "worker/transport/sleeper.h"
#include "worker/transport/transport.h"
#include "worker/transport/ucx/core.h"

namespace switchyard {

// Options of a UCX transport.
struct UcxOptions {
  Incarnation incarnation{};  // of this process
  Duration busy_poll{};       // see Sleeper
  Duration admission = kUcxAdmission;
  std::string ring_dir{};  // for the sockets over which rings are passed (local_socket.h)
  UcxContextOptions context;
};

class UcxTransport final : public Transport {
 public:
  // Errors: kFailedPrecondition or kUnavailable (TRANSPORT) if UCX does not start; kInvalidArgument
  // (BAD_CONFIG) if ring_dir cannot be used.
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const UcxOptions& options);
  // Closes the remaining links.
  ~UcxTransport() override;

  absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) override;
  bool Progress(FrameSink& sink) override;
  bool Arm() override;
  void Wait(Duration max) override { sleeper_->Wait(max); }
  void Wake() override { sleeper_->Wake(); }
  [[nodiscard]] std::shared_ptr<LinkMemory> MakeMemory(const LinkOptions& options) const override;
  bool RunAside(std::function<void()> work) override {
    core_.memory_thread.Run(std::move(work));
    return true;
  }
  void CountDrop(FrameDrop drop) override { core_.inbox.CountDrop(drop); }
  [[nodiscard]] MemoryKind slot_memory() const override { return MemoryKind::kHost; }
  [[nodiscard]] std::string library() const override;
  [[nodiscard]] std::vector<std::string> hosts() const override;
  [[nodiscard]] TransportStats stats() const override;

 private:
  UcxTransport() = default;
  absl::Status Init(const UcxOptions& options);
  // Lets `receiver` pass its messages to OnMessage, and closes its ports to strangers.
  absl::Status SetUp(ucp_worker_h receiver, std::span<const UcxListener> listeners);
  // Opens another port where UCX has closed that of the current receiver.
  absl::Status KeepListening();
  // Has UCX accept the connections that wait. False if there was none.
  bool Accept();
  // Ends admissions, and connects links that have waited for their peers.
  void KeepTimes();
  // Takes doorbells, runs UCX and sends waiting frames. True if there was anything to do.
  bool Work();
  bool TakeDoorbells();
  // Progresses the receiver until something is ready for the sink.
  bool Receive();
  // Progresses the sender and flushes what waits for it.
  bool Send();
  void SetBells(BellState state);
  // Tells peers and UCX to signal. False if there is something to do already.
  bool ArmAll();
  // Calls OnLinkDown for every failed link. True if there was one.
  bool ReportLinksDown(FrameSink& sink);
  // UCX's callback for an inbound message.
  static ucs_status_t OnMessage(void* self, const void* header, std::size_t header_bytes,
                                void* data, std::size_t data_bytes,
                                const ucp_am_recv_param_t* param);

  UcxCore core_;
  std::unique_ptr<Sleeper> sleeper_;
  std::uint64_t late_wakes_ = 0;
  int busy_rounds_ = 0;      // calls of Work since all of UCX was last progressed
  bool bells_wake_ = false;  // peers may have been told that this side sleeps
};

}  // namespace switchyard
