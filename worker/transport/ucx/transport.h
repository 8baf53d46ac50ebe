// The transport over UCX: shared memory on one host, tcp anywhere. See
// worker/transport/transport.h.
//
// Every link is an endpoint of its own in error mode PEER, so a peer's death is told per link, from
// Progress. What UCX objects there are is in ucx/context.h, which settings it gets and why in
// ucx/context.cc, how frames travel in ucx/outbox.h.
#pragma once

#include <memory>
#include <string>

#include "worker/transport/sleeper.h"
#include "worker/transport/transport.h"
#include "worker/transport/ucx/core.h"

namespace switchyard {

struct UcxOptions {
  Incarnation incarnation{};  // of this process
  Duration spin{};            // see Sleeper
  UcxContextOptions context;
};

class UcxTransport final : public Transport {
 public:
  // Errors: kFailedPrecondition or kUnavailable (TRANSPORT) when UCX does not start.
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const UcxOptions& options);
  ~UcxTransport() override;

  absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) override;
  bool Progress(FrameSink& sink) override;
  bool Arm() override;
  void Wait(Duration max) override { sleeper_->Wait(max); }
  void Wake() override { sleeper_->Wake(); }
  void CountDrop(FrameDrop drop) override { core_.inbox.CountDrop(drop); }
  [[nodiscard]] TransportStats stats() const override;

 private:
  UcxTransport() = default;
  absl::Status Init(const UcxOptions& options);
  bool Work();
  bool TellLinksDown(FrameSink& sink);
  static ucs_status_t OnMessage(void* self, const void* header, std::size_t header_bytes,
                                void* data, std::size_t data_bytes,
                                const ucp_am_recv_param_t* param);

  UcxCore core_;
  std::unique_ptr<Sleeper> sleeper_;
  std::uint64_t late_wakes_ = 0;
  int busy_rounds_ = 0;  // of Work, since the sender had its turn
};

}  // namespace switchyard
