#include "services/coordinator/worker_dialer.h"

#include <cstddef>
#include <iterator>
#include <list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

#include "coordinator/spec/deployment.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/name.h"
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

std::string ProblemOf(v1::PeerReach reach, const std::string& witness) {
  switch (reach) {
    case v1::PEER_REACH_NO_ANSWER:
      return absl::StrCat("no worker answers its peer ", witness);
    case v1::PEER_REACH_ANOTHER:
      return absl::StrCat("another process answers its peer ", witness);
    case v1::PEER_REACH_NO_ROWS:
      return absl::StrCat("its peer ", witness,
                          " gets an answer, but no connection to the ports for rows "
                          "(--net-devices, --data-ports)");
    default:
      return {};
  }
}

}  // namespace

// A reactor and not a function: gRPC releases a call before OnDone, but after a function, and must
// not hold the last reference to a channel on a thread of its own
// (services/grpc/calls_in_flight.h).
template <typename Request, typename Response>
class UnaryCall final : public grpc::ClientUnaryReactor {
 public:
  using Done = std::function<void(const grpc::Status& status, const Response& response)>;

  UnaryCall(const std::string& endpoint, const PeerSecurity& security)
      : stub_(v1::ExpertService::NewStub(
            MakeGrpcChannel(endpoint, kControlMessageBytesMax, {}, security))) {}

  // `begin(async, context, request, response, reactor)`: calls the method, of the stub's
  // asynchronous ones. Call once. `done` is called last.
  template <typename Begin>
  void Start(Begin begin, Request request, Duration timeout, Done done) {
    request_ = std::move(request);
    done_ = std::move(done);
    context_.set_deadline(GrpcDeadline(timeout));
    begin(*stub_->async(), &context_, &request_, &response_, this);
    StartCall();
  }
  // Before Start it ends the call at once.
  void Cancel() { context_.TryCancel(); }

  void OnDone(const grpc::Status& status) override {
    const Done done = std::move(done_);
    done(status, response_);
  }

 private:
  const std::unique_ptr<v1::ExpertService::Stub> stub_;
  grpc::ClientContext context_;
  Request request_;
  Response response_;
  Done done_;
};

// One dial: the worker itself, then its witnesses one after the other.
class WorkerDialer::Call final {
 public:
  Call(const DialWorker& dial, std::function<void(absl::Status)> done, const PeerSecurity& security)
      : dial_(dial), done_(std::move(done)), identify_(dial.endpoint, security) {
    for (const DialWitness& each : dial_.witnesses) {
      witnesses_.emplace_back(each.endpoint, security);
    }
  }

  // `ended` is called last; the call may be destroyed from then on, on a thread of ours.
  void Start(Duration timeout, std::function<void()> ended) {
    timeout_ = timeout;
    ended_ = std::move(ended);
    const auto begin = [](auto& async, auto... call) { async.Identify(call...); };
    identify_.Start(begin, {}, timeout,
                    [this](const grpc::Status& status, const v1::IdentifyResponse& response) {
                      const absl::Status identity = CheckIdentity(dial_, status, response);
                      identity.ok() ? AskNext() : Finish(identity);
                    });
  }
  // From any thread, as often as it likes.
  void Cancel() {
    identify_.Cancel();
    for (Witness& each : witnesses_) each.Cancel();
  }

  bool over = false;  // guarded by the mutex of Calls

 private:
  using Witness = UnaryCall<v1::DialPeerRequest, v1::DialPeerResponse>;

  void AskNext() {
    if (asked_ == witnesses_.size()) return Finish(first_no_);
    const std::size_t index = asked_++;
    v1::DialPeerRequest request;
    request.set_worker_id(dial_.worker);
    request.set_incarnation(ToHex(dial_.incarnation));
    request.set_endpoint(dial_.endpoint);
    auto it = std::next(witnesses_.begin(), static_cast<std::ptrdiff_t>(index));
    const auto begin = [](auto& async, auto... call) { async.DialPeer(call...); };
    it->Start(begin, std::move(request), timeout_,
              [this, index](const grpc::Status& status, const v1::DialPeerResponse& response) {
                OnAnswer(dial_.witnesses[index], status, response.reach());
              });
  }

  void OnAnswer(const DialWitness& witness, const grpc::Status& status, v1::PeerReach reach) {
    if (status.ok() && reach == v1::PEER_REACH_REACHED) return Finish(absl::OkStatus());
    // A witness that does not answer, or not what this version knows, says nothing about the
    // worker.
    const std::string problem = status.ok() ? ProblemOf(reach, witness.worker) : "";
    if (!problem.empty() && first_no_.ok()) {
      first_no_ = WithMetadata(Unreachable(absl::StatusCode::kUnavailable, dial_, problem),
                               kWitnessKey, witness.worker);
    }
    AskNext();
  }

  void Finish(const absl::Status& status) {
    done_(status);
    const std::function<void()> ended = std::move(ended_);
    ended();
  }

  const DialWorker dial_;
  const std::function<void(absl::Status)> done_;
  std::function<void()> ended_;
  Duration timeout_{};
  UnaryCall<v1::IdentifyRequest, v1::IdentifyResponse> identify_;
  std::list<Witness> witnesses_;
  std::size_t asked_ = 0;
  absl::Status first_no_;  // what the first witness said that cannot connect
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

WorkerDialer::WorkerDialer(Duration timeout, std::shared_ptr<const TransportSecurity> security)
    : timeout_(timeout), security_(std::move(security)), calls_(std::make_unique<Calls>()) {}
WorkerDialer::~WorkerDialer() = default;

void WorkerDialer::Dial(const DialWorker& request, std::function<void(absl::Status)> done) {
  const PeerSecurity security{security_, Role::kWorker};
  calls_->Start(std::make_unique<Call>(request, std::move(done), security), timeout_);
}

}  // namespace switchyard
