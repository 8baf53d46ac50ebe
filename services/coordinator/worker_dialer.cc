#include "services/coordinator/worker_dialer.h"

#include <iterator>
#include <list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

#include "coordinator/deployment.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {
namespace {

absl::Status Unreachable(absl::StatusCode code, const DialWorker& dial, absl::string_view what) {
  return MakeError(code, Reason::kTransport,
                   absl::StrFormat("at %s %s; check its --listen and --advertise, and that "
                                   "firewalls let its peers in",
                                   dial.endpoint, what),
                   {{"worker", dial.worker}});
}

absl::Status CheckIdentity(const DialWorker& dial, const grpc::Status& answered,
                           const v1::IdentifyResponse& response) {
  const absl::Status status = StatusFromGrpc(answered);
  if (!status.ok()) {
    const bool other = status.code() == absl::StatusCode::kUnimplemented;
    return Unreachable(
        other ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable, dial,
        absl::StrCat(
            other ? "a server answers that is no worker of this version" : "no worker answers",
            " (", status.message(), ")"));
  }
  if (response.worker_id() == dial.worker && response.incarnation() == ToHex(dial.incarnation)) {
    return absl::OkStatus();
  }
  // The text is shown to operators, so that it takes nothing from a stranger unchecked.
  const std::string who = IsName(response.worker_id()) ? response.worker_id() : "without a name";
  return Unreachable(absl::StatusCode::kFailedPrecondition, dial,
                     who == dial.worker ? "another process of its id answers"
                                        : absl::StrCat("worker ", who, " answers"));
}

}  // namespace

// A reactor and not a function: gRPC releases a call before OnDone, but after a function, and must
// not hold the last reference to a channel on a thread of its own
// (services/grpc/calls_in_flight.h).
class WorkerDialer::Call final : public grpc::ClientUnaryReactor {
 public:
  Call(const DialWorker& dial, std::function<void(absl::Status)> done)
      : dial_(dial),
        done_(std::move(done)),
        stub_(v1::ExpertService::NewStub(MakeGrpcChannel(dial.endpoint, kControlMessageBytesMax))) {
  }

  // `ended` is called last; the call may be destroyed from then on, on a thread of ours.
  void Start(Duration timeout, std::function<void()> ended) {
    ended_ = std::move(ended);
    context_.set_deadline(GrpcDeadline(timeout));
    stub_->async()->Identify(&context_, &request_, &response_, this);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnDone(const grpc::Status& status) override {
    done_(CheckIdentity(dial_, status, response_));
    const std::function<void()> ended = std::move(ended_);
    ended();
  }

  bool over = false;  // guarded by the mutex of Calls

 private:
  const DialWorker dial_;
  const std::function<void(absl::Status)> done_;
  std::function<void()> ended_;
  const std::unique_ptr<v1::ExpertService::Stub> stub_;
  grpc::ClientContext context_;
  const v1::IdentifyRequest request_;
  v1::IdentifyResponse response_;
};

// The calls that run, and those that have ended since the last one began, which a thread of gRPC
// must not destroy.
class WorkerDialer::Calls {
 public:
  Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() {
    const MutexLock lock(mutex_);
    for (const auto& call : calls_) call->Cancel();
    while (!AllEnded()) changed_.Wait(mutex_);
  }

  void Start(std::unique_ptr<Call> call, Duration timeout) {
    Call* const started = call.get();
    std::list<std::unique_ptr<Call>> over;  // destroyed without the lock
    {
      const MutexLock lock(mutex_);
      for (auto it = calls_.begin(); it != calls_.end();) {
        const auto next = std::next(it);
        if ((*it)->over) over.splice(over.end(), calls_, it);
        it = next;
      }
      calls_.push_back(std::move(call));
    }
    started->Start(timeout, [this, started] {
      const MutexLock lock(mutex_);
      started->over = true;
      changed_.NotifyAll();  // under the lock, since the destructor may follow at once
    });
  }

 private:
  [[nodiscard]] bool AllEnded() const SY_REQUIRES(mutex_) {
    for (const auto& call : calls_) {
      if (!call->over) return false;
    }
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  std::list<std::unique_ptr<Call>> calls_ SY_GUARDED_BY(mutex_);
};

WorkerDialer::WorkerDialer(Duration timeout)
    : timeout_(timeout), calls_(std::make_unique<Calls>()) {}
WorkerDialer::~WorkerDialer() = default;

void WorkerDialer::Dial(const DialWorker& request, std::function<void(absl::Status)> done) {
  calls_->Start(std::make_unique<Call>(request, std::move(done)), timeout_);
}

}  // namespace switchyard
