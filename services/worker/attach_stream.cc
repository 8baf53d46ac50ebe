#include "services/worker/attach_stream.h"

#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "services/convert/attach.h"
#include "services/grpc/server_streams.h"
#include "worker/expert/expert_service.h"

namespace switchyard {
namespace {

class AttachServerStream final : public ServerBidiStream<v1::AttachRequest, v1::AttachResponse> {
 public:
  AttachServerStream(grpc::CallbackServerContext* context, ExpertService* experts,
                     AttachThreads* threads)
      : ServerBidiStream(context, {}),
        experts_(experts),
        threads_(threads),
        closer_(std::make_shared<Closer>(this)) {}

  using ServerBidiStream::BeginReading;

 private:
  // Lets the worker end the stream while the stream exists.
  struct Closer {
    explicit Closer(AttachServerStream* s) : stream(s) {}
    Mutex mutex;
    AttachServerStream* stream SY_GUARDED_BY(mutex);
  };

  void OnRequest(v1::AttachRequest& request) override {
    // The call waits for the data thread, and gRPC's threads must not. `request` stays valid until
    // ReadNext.
    ThreadPool& threads = attachment_.has_value() ? threads_->bind : threads_->attach;
    threads.Run([this, &request] {
      Handle(request);
      ReadNext();
    });
  }

  void Handle(const v1::AttachRequest& request) {
    const absl::StatusOr<AttachMessage> message = FromProto(request);
    if (!message.ok()) return End(message.status());
    std::visit([this](const auto& part) { Handle(part); }, *message);
  }
  void Handle(const AttachRequest& request) {
    if (attachment_.has_value()) return End(Misplaced("a stream is one attachment"));
    const auto on_closed = [closer = closer_](const absl::Status& why) {
      const MutexLock lock(closer->mutex);
      // The stream may have ended and be deleted; the worker's callback comes from the data thread.
      if (closer->stream != nullptr) closer->stream->End(why);
    };
    const absl::StatusOr<AttachGrant> grant = experts_->Attach(request, on_closed, kAttachTimeout);
    if (!grant.ok()) return End(grant.status());
    attachment_ = grant->request_ring.attachment;
    Write(ToProto(AttachAnswer(*grant)));
  }
  void Handle(const BindRequest& request) {
    if (!attachment_.has_value()) return End(Misplaced("the first message of a stream attaches"));
    const absl::Status result = experts_->Bind(*attachment_, request, kAttachTimeout);
    Write(ToProto(AttachAnswer(BindAnswer{request.epoch, result})));
  }
  void Handle(const ReleaseRequest& request) {
    if (!attachment_.has_value()) return End(Misplaced("the first message of a stream attaches"));
    // Not answered: an error only says that the epoch is not bound, and so is released already.
    experts_->Release(*attachment_, request, kAttachTimeout).IgnoreError();
  }
  static absl::Status Misplaced(absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest, what,
                     {{"field", "AttachRequest.message"}});
  }

  void OnStreamDone() override {
    {
      const MutexLock lock(closer_->mutex);
      closer_->stream = nullptr;
    }
    // Whatever ended the stream: a source that is gone must not keep its rings.
    if (attachment_.has_value()) experts_->Close(*attachment_);
  }

  ExpertService* const experts_;
  AttachThreads* const threads_;
  const std::shared_ptr<Closer> closer_;
  std::optional<AttachmentId> attachment_;  // used by one request at a time
};

}  // namespace

grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* ServeAttach(
    grpc::CallbackServerContext* context, ExpertService* experts, AttachThreads* threads) {
  auto* stream = new AttachServerStream(context, experts, threads);  // deletes itself
  stream->BeginReading();
  return stream;
}

}  // namespace switchyard
