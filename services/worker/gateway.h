// What a gateway asks of the source that runs its callers' steps. `SourceGateway` is the product's;
// tests bring their own. Thread-safe; a session is used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/session_messages.h"
#include "worker/source/source.h"

namespace switchyard {

class GatewaySource {
 public:
  virtual ~GatewaySource() = default;
  // Each as in worker/source/source.h.
  virtual absl::StatusOr<Source::SessionRef> Open(const OpenSessionRequest& order,
                                                  Duration timeout) = 0;
  virtual absl::StatusOr<SessionGrant> Grant(Source::SessionRef session) = 0;
  virtual absl::StatusOr<StepTicket> Dispatch(Source::SessionRef session,
                                              const StepRequest& request) = 0;
  virtual absl::Status Combine(Source::SessionRef session, const StepTicket& ticket) = 0;
  virtual absl::Status Close(Source::SessionRef session, Duration timeout) = 0;
};

class SourceGateway final : public GatewaySource {
 public:
  // `source` outlives this. `transport` is how the gateway reaches the other workers.
  SourceGateway(Source* source, TransportChoice transport)
      : source_(source), transport_(transport) {}

  absl::StatusOr<Source::SessionRef> Open(const OpenSessionRequest& order,
                                          Duration timeout) override {
    return source_->Open(order, transport_, timeout);
  }
  absl::StatusOr<SessionGrant> Grant(Source::SessionRef session) override {
    return source_->Grant(session);
  }
  absl::StatusOr<StepTicket> Dispatch(Source::SessionRef session,
                                      const StepRequest& request) override {
    return source_->Dispatch(session, request);
  }
  absl::Status Combine(Source::SessionRef session, const StepTicket& ticket) override {
    return source_->Combine(session, ticket);
  }
  absl::Status Close(Source::SessionRef session, Duration timeout) override {
    return source_->Close(session, timeout);
  }

 private:
  Source* const source_;
  const TransportChoice transport_;
};

}  // namespace switchyard
