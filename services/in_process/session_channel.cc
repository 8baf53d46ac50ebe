#include "services/in_process/session_channel.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Far longer than the data thread needs, which answers between two batches. A call that takes this
// long shows a hung worker.
constexpr Duration kCallTimeout = std::chrono::seconds(10);

absl::Status NoSuchWorker(const std::string& endpoint) {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("this process has no worker at ", endpoint),
                   {{"endpoint", endpoint}});
}

// Waits up to `timeout` for the result of a callback. The promise is shared, so that a later
// callback still finds it.
template <typename T>
T Await(std::shared_ptr<std::promise<T>> promise, Duration timeout) {
  std::future<T> future = promise->get_future();
  if (future.wait_for(timeout) == std::future_status::ready) return future.get();
  return MakeError(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost,
                   "the coordinator did not answer in time; try again");
}

// One watch; the driver's sink and the source's stream in one object.
class InProcessWatch final : public WatchStream, private PlanUpdateSink {
 public:
  InProcessWatch(Driver* driver, const WatchRequest& request, WatchSink* sink)
      : driver_(driver), sink_(sink) {
    absl::StatusOr<WatchId> watch = driver_->Watch(request, this);
    if (watch.ok()) {
      watch_ = *watch;
    } else {
      sink_->OnWatchEnded(watch.status());
    }
  }
  ~InProcessWatch() override {
    if (watch_.has_value()) driver_->StopWatch(*watch_);
  }

 private:
  void OnPlanUpdate(const std::shared_ptr<const PlanUpdate>& update) override {
    sink_->OnPlan(*update);
  }
  void OnClosed(const absl::Status& why) override { sink_->OnWatchEnded(why); }

  Driver* driver_;
  WatchSink* sink_;
  std::optional<WatchId> watch_;
};

// One attachment. Its calls run on the caller's thread and wait for the worker's data thread.
class InProcessAttach final : public AttachStream {
 public:
  InProcessAttach(std::shared_ptr<InProcessWorker> worker, const AttachRequest& request,
                  AttachSink* sink)
      : worker_(std::move(worker)), listener_(std::make_shared<Listener>(sink)) {
    const auto grant = worker_->Call<absl::StatusOr<AttachGrant>>([&](ExpertService& experts) {
      return experts.Attach(
          request, [listener = listener_](const absl::Status& why) { listener->Ended(why); },
          kCallTimeout);
    });
    if (!grant.ok()) {
      listener_->Ended(grant.status());
      return;
    }
    attachment_ = grant->request_ring.attachment;
    sink->OnAttached(*grant);
  }
  ~InProcessAttach() override {
    // Detach first: the worker's close callback must not reach a sink that is being destroyed.
    listener_->Detach();
    if (!attachment_.has_value()) return;
    // The error is irrelevant: a worker that is gone has nothing left to close.
    worker_
        ->Call<absl::Status>([this](ExpertService& experts) {
          experts.Close(*attachment_);
          return absl::OkStatus();
        })
        .IgnoreError();
  }

  void Bind(const BindRequest& request) override {
    if (!attachment_.has_value()) return;
    listener_->Bound(request.epoch, worker_->Call<absl::Status>([&](ExpertService& experts) {
      return experts.Bind(*attachment_, request, kCallTimeout);
    }));
  }
  void Release(const ReleaseRequest& request) override {
    if (!attachment_.has_value()) return;
    // The error is irrelevant: without an attachment there is nothing to release.
    worker_
        ->Call<absl::Status>([&](ExpertService& experts) {
          return experts.Release(*attachment_, request, kCallTimeout);
        })
        .IgnoreError();
  }

 private:
  // Forwards the worker's callbacks to the sink until the stream ends. Shared with the callback,
  // which may run once more after the stream has been destroyed.
  class Listener {
   public:
    explicit Listener(AttachSink* sink) : sink_(sink) {}
    void Ended(const absl::Status& why) {
      const MutexLock lock(mutex_);
      // Cleared first: it is the last call of a stream.
      if (sink_ != nullptr) std::exchange(sink_, nullptr)->OnAttachEnded(why);
    }
    void Bound(Epoch epoch, const absl::Status& result) {
      const MutexLock lock(mutex_);
      if (sink_ != nullptr) sink_->OnBound(epoch, result);
    }
    void Detach() {
      const MutexLock lock(mutex_);
      sink_ = nullptr;
    }

   private:
    Mutex mutex_;
    AttachSink* sink_ SY_GUARDED_BY(mutex_);  // nullptr: detached
  };

  std::shared_ptr<InProcessWorker> worker_;
  std::shared_ptr<Listener> listener_;
  std::optional<AttachmentId> attachment_;
};

// The stream to a worker that does not exist: it reports its end immediately.
class DeadAttach final : public AttachStream {
 public:
  DeadAttach(const std::string& endpoint, AttachSink* sink) {
    sink->OnAttachEnded(NoSuchWorker(endpoint));
  }
  void Bind(const BindRequest& /*request*/) override {}
  void Release(const ReleaseRequest& /*request*/) override {}
};

class InProcessSessionChannel final : public SessionChannel {
 public:
  InProcessSessionChannel(Driver* driver, InProcessWorkers* workers)
      : driver_(driver), workers_(workers) {}

  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& request,
                                           Duration timeout) override {
    auto promise = std::make_shared<std::promise<absl::StatusOr<SessionGrant>>>();
    driver_->OpenSession(request, [promise](absl::StatusOr<SessionGrant> grant) {
      promise->set_value(std::move(grant));
    });
    return Await(std::move(promise), timeout);
  }
  absl::Status CloseSession(SessionId session, Duration timeout) override {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    driver_->CloseSession(session, [promise](absl::Status status) { promise->set_value(status); });
    return Await(std::move(promise), timeout);
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& request, WatchSink* sink) override {
    return std::make_unique<InProcessWatch>(driver_, request, sink);
  }
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& request,
                                       AttachSink* sink) override {
    std::shared_ptr<InProcessWorker> worker = workers_->Find(endpoint);
    if (worker == nullptr) return std::make_unique<DeadAttach>(endpoint, sink);
    return std::make_unique<InProcessAttach>(std::move(worker), request, sink);
  }
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override {
    const std::shared_ptr<InProcessWorker> worker = workers_->Find(endpoint);
    if (worker == nullptr) return NoSuchWorker(endpoint);
    SessionCounters counters;
    counters.worker_id = worker->worker_id();
    SY_ASSIGN_OR_RETURN(
        counters.attachments,
        worker->Call<absl::StatusOr<std::vector<AttachmentCounters>>>(
            [&](ExpertService& experts) { return experts.CountersOf(session, timeout); }));
    return counters;
  }

 private:
  Driver* driver_;
  InProcessWorkers* workers_;
};

}  // namespace

void InProcessWorker::Retire() {
  const MutexLock lock(mutex_);
  experts_ = nullptr;
}

absl::Status InProcessWorker::Gone() const {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("worker ", worker_id_, " is gone"), {{"worker", worker_id_}});
}

void InProcessWorkers::Add(const std::string& endpoint, const std::string& worker_id,
                           ExpertService* experts) {
  const MutexLock lock(mutex_);
  workers_[endpoint] = std::make_shared<InProcessWorker>(worker_id, experts);
}

void InProcessWorkers::Remove(const std::string& endpoint) {
  std::shared_ptr<InProcessWorker> worker = Find(endpoint);
  if (worker == nullptr) return;
  // Retire waits for running calls, so it must not hold the directory's lock: such a call may look
  // up another worker.
  worker->Retire();
  const MutexLock lock(mutex_);
  workers_.erase(endpoint);
}

std::shared_ptr<InProcessWorker> InProcessWorkers::Find(const std::string& endpoint) const {
  const MutexLock lock(mutex_);
  const auto it = workers_.find(endpoint);
  return it == workers_.end() ? nullptr : it->second;
}

std::unique_ptr<SessionChannel> MakeInProcessSessionChannel(Driver* driver,
                                                            InProcessWorkers* workers) {
  return std::make_unique<InProcessSessionChannel>(driver, workers);
}

}  // namespace switchyard
