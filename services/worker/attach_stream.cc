#include "services/worker/attach_stream.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "services/convert/attach.h"
#include "services/grpc/server_streams.h"
#include "worker/expert/expert_service.h"

namespace switchyard {
namespace {

class AttachServerStream final : public ServerBidiStream<v1::AttachRequest, v1::AttachResponse> {
 public:
  AttachServerStream(const StreamCall& call, ExpertService* experts, AttachThreads* threads,
                     Logger* log)
      : ServerBidiStream(call, {}),
        experts_(experts),
        threads_(threads),
        log_(log),
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
    absl::StatusOr<AttachMessage> message = FromProto(request);
    if (!message.ok()) return End(message.status());
    if (auto* attach = std::get_if<AttachRequest>(&*message)) attach->caller = caller();
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
    session_ = ToHex(request.session);
    if (!grant.ok()) {
      Say(absl::StrCat("is refused: ", grant.status().message()), request.epoch);
      return End(grant.status());
    }
    attachment_ = grant->request_ring.attachment;
    Say("is attached", request.epoch);
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
    if (attachment_.has_value()) {
      experts_->Close(*attachment_);
      Say("has ended");
    }
  }

  void Say(absl::string_view what, Epoch epoch = {}) {
    if (log_ == nullptr || !log_->Enabled(LogLevel::kDebug)) return;
    LogFields fields{{"session", session_}};
    if (epoch.value != 0) fields.emplace_back("epoch", epoch.value);
    log_->Write(LogLevel::kDebug, absl::StrCat("session ", session_, " ", what), fields);
  }

  ExpertService* const experts_;
  AttachThreads* const threads_;
  Logger* const log_;
  const std::shared_ptr<Closer> closer_;
  // Used by one request at a time.
  std::optional<AttachmentId> attachment_;
  std::string session_;  // for the log
};

}  // namespace

grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* ServeAttach(const StreamCall& call,
                                                                            ExpertService* experts,
                                                                            AttachThreads* threads,
                                                                            Logger* log) {
  auto* stream = new AttachServerStream(call, experts, threads, log);  // deletes itself
  stream->BeginReading();
  return stream;
}

}  // namespace switchyard
