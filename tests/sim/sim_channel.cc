#include "tests/sim/sim_channel.h"

#include <utility>

#include "core/base/error.h"
#include "tests/sim/coordinator_node.h"
#include "tests/sim/worker_node.h"
#include "tests/sim/world.h"

namespace switchyard::sim {
namespace {

absl::Status NotHere() {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   "the simulation does not block");
}

// A stream as its owner holds it: when it goes, its sink is not called any more.
template <typename Stream, typename Sink>
class SimStream : public Stream {
 public:
  SimStream(std::shared_ptr<Wire> link, std::shared_ptr<Sink*> sink)
      : link_(std::move(link)), sink_(std::move(sink)) {}
  ~SimStream() override {
    *sink_ = nullptr;
    link_->Close(0, absl::OkStatus());
  }

 protected:
  std::shared_ptr<Wire> link_;
  std::shared_ptr<Sink*> sink_;
};

using SimWatch = SimStream<WatchStream, WatchSink>;

class SimAttach final : public SimStream<AttachStream, AttachSink> {
 public:
  SimAttach(std::shared_ptr<Wire> link, std::shared_ptr<AttachSink*> sink, WorkerNode* worker)
      : SimStream(std::move(link), std::move(sink)), worker_(worker) {}
  void Bind(const BindRequest& order) override {
    link_->Send(0, [worker = worker_, link = link_, order] { worker->Bind(link, order); });
  }
  void Release(const ReleaseRequest& order) override {
    link_->Send(0, [worker = worker_, link = link_, order] { worker->Release(link, order); });
  }

 private:
  WorkerNode* worker_;
};

}  // namespace

absl::StatusOr<SessionGrant> SimChannel::OpenSession(const OpenSessionRequest& /*order*/,
                                                     Duration /*timeout*/) {
  return NotHere();
}

absl::Status SimChannel::CloseSession(SessionId /*session*/, Duration /*timeout*/) {
  return NotHere();
}

absl::StatusOr<SessionCounters> SimChannel::GetCounters(const std::string& /*endpoint*/,
                                                        SessionId /*session*/,
                                                        Duration /*timeout*/) {
  return NotHere();
}

std::unique_ptr<WatchStream> SimChannel::Watch(const WatchRequest& order, WatchSink* sink) {
  CoordinatorNode& coordinator = world_->coordinator();
  auto to = std::make_shared<WatchSink*>(sink);
  auto link =
      world_->network.Dial(node_, coordinator.id(), [&coordinator, order, to](const auto& there) {
        coordinator.Watch(there, order, [to](const auto& news) {
          if (*to != nullptr) (*to)->OnPlan(*news);
        });
      });
  link->on_down[0] = [this, to](const absl::Status& why) {
    world_->Trace("%s: its watch ended: %s", world_->network.node(node_).name, why.message());
    if (*to != nullptr) (*to)->OnWatchEnded(why);
  };
  return std::make_unique<SimWatch>(std::move(link), std::move(to));
}

std::unique_ptr<AttachStream> SimChannel::Attach(const std::string& endpoint,
                                                 const AttachRequest& order, AttachSink* sink) {
  WorkerNode* worker = world_->FindWorker(endpoint);
  auto to = std::make_shared<AttachSink*>(sink);
  const AttachAnswers answers{.attached =
                                  [to](const AttachGrant& grant) {
                                    if (*to != nullptr) (*to)->OnAttached(grant);
                                  },
                              .bound =
                                  [to](Epoch epoch, const absl::Status& result) {
                                    if (*to != nullptr) (*to)->OnBound(epoch, result);
                                  }};
  auto link = world_->network.Dial(
      node_, worker->id(),
      [worker, order, answers](const auto& there) { worker->Attach(there, order, answers); });
  link->on_down[0] = [this, to, endpoint](const absl::Status& why) {
    world_->Trace("%s: its attachment to %s ended: %s", world_->network.node(node_).name, endpoint,
                  why.message());
    if (*to != nullptr) (*to)->OnAttachEnded(why);
  };
  return std::make_unique<SimAttach>(std::move(link), std::move(to), worker);
}

}  // namespace switchyard::sim
