#include "services/in_process/session_channel.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// A worker's data thread answers between two batches.
constexpr Duration kCallTimeout = std::chrono::seconds(10);

absl::Status NoSuchWorker(const std::string& endpoint) {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("no worker at ", endpoint, " in this process"),
                   {{"endpoint", endpoint}});
}

// The outcome of a callback, waited for at most `timeout`. A callback that comes later finds its
// promise still there.
template <typename T>
T Await(std::shared_ptr<std::promise<T>> promise, Duration timeout) {
  std::future<T> future = promise->get_future();
  if (future.wait_for(timeout) == std::future_status::ready) return future.get();
  return MakeError(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost,
                   "the coordinator did not answer in time; try again");
}

class InProcessWatch final : public WatchStream, private PlanUpdateSink {
 public:
  InProcessWatch(Driver* driver, const WatchRequest& order, WatchSink* sink)
      : driver_(driver), sink_(sink) {
    absl::StatusOr<WatchId> watch = driver_->Watch(order, this);
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
  void OnNews(const std::shared_ptr<const PlanUpdate>& news) override { sink_->OnPlan(*news); }
  void OnClosed(const absl::Status& why) override { sink_->OnWatchEnded(why); }

  Driver* driver_;
  WatchSink* sink_;
  std::optional<WatchId> watch_;
};

class InProcessAttach final : public AttachStream {
 public:
  InProcessAttach(std::shared_ptr<InProcessWorker> worker, const AttachRequest& order,
                  AttachSink* sink)
      : worker_(std::move(worker)), ear_(std::make_shared<Ear>(sink)) {
    const auto grant = worker_->Call<absl::StatusOr<AttachGrant>>([&](ExpertService& experts) {
      return experts.Attach(
          order, [ear = ear_](const absl::Status& why) { ear->Ended(why); }, kCallTimeout);
    });
    if (!grant.ok()) {
      ear_->Ended(grant.status());
      return;
    }
    attachment_ = grant->request_ring.attachment;
    sink->OnAttached(*grant);
  }
  ~InProcessAttach() override {
    ear_->Detach();
    if (!attachment_.has_value()) return;
    // A worker that is gone has nothing left to close.
    worker_
        ->Call<absl::Status>([this](ExpertService& experts) {
          experts.Close(*attachment_);
          return absl::OkStatus();
        })
        .IgnoreError();
  }

  void Bind(const BindRequest& order) override {
    if (!attachment_.has_value()) return;
    ear_->Bound(order.epoch, worker_->Call<absl::Status>([&](ExpertService& experts) {
      return experts.Bind(*attachment_, order, kCallTimeout);
    }));
  }
  void Release(const ReleaseRequest& order) override {
    if (!attachment_.has_value()) return;
    // A release that finds no attachment has nothing left to release.
    worker_
        ->Call<absl::Status>([&](ExpertService& experts) {
          return experts.Release(*attachment_, order, kCallTimeout);
        })
        .IgnoreError();
  }

 private:
  // Outlives the stream in the worker's callback, which may come once more after the stream.
  class Ear {
   public:
    explicit Ear(AttachSink* sink) : sink_(sink) {}
    void Ended(const absl::Status& why) {
      const MutexLock lock(mutex_);
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
    AttachSink* sink_ SY_GUARDED_BY(mutex_);  // nullptr: nobody listens
  };

  std::shared_ptr<InProcessWorker> worker_;
  std::shared_ptr<Ear> ear_;
  std::optional<AttachmentId> attachment_;
};

// A worker that is not there: the stream has ended before it began.
class DeadAttach final : public AttachStream {
 public:
  DeadAttach(const std::string& endpoint, AttachSink* sink) {
    sink->OnAttachEnded(NoSuchWorker(endpoint));
  }
  void Bind(const BindRequest& /*order*/) override {}
  void Release(const ReleaseRequest& /*order*/) override {}
};

class InProcessSessionChannel final : public SessionChannel {
 public:
  InProcessSessionChannel(Driver* driver, InProcessWorkers* workers)
      : driver_(driver), workers_(workers) {}

  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& order,
                                           Duration timeout) override {
    auto promise = std::make_shared<std::promise<absl::StatusOr<SessionGrant>>>();
    driver_->OpenSession(order, [promise](absl::StatusOr<SessionGrant> grant) {
      promise->set_value(std::move(grant));
    });
    return Await(std::move(promise), timeout);
  }
  absl::Status CloseSession(SessionId session, Duration timeout) override {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    driver_->CloseSession(session, [promise](absl::Status status) { promise->set_value(status); });
    return Await(std::move(promise), timeout);
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& order, WatchSink* sink) override {
    return std::make_unique<InProcessWatch>(driver_, order, sink);
  }
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& order,
                                       AttachSink* sink) override {
    std::shared_ptr<InProcessWorker> worker = workers_->Find(endpoint);
    if (worker == nullptr) return std::make_unique<DeadAttach>(endpoint, sink);
    return std::make_unique<InProcessAttach>(std::move(worker), order, sink);
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
