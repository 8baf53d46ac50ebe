#include "services/worker/group_stream.h"

#include <optional>
#include <utility>

#include "core/base/error.h"
#include "services/convert/group.h"
#include "services/grpc/server_streams.h"
#include "worker/collective/expert/group_service.h"
#include "worker/expert/direct_experts.h"

namespace switchyard {
namespace {

class GroupServerStream final
    : public ServerBidiStream<v1::JoinGroupRequest, v1::JoinGroupResponse>,
      private GroupSink {
 public:
  GroupServerStream(const StreamCall& call, GroupService* groups, const DirectExperts* experts,
                    ThreadPool* threads)
      : ServerBidiStream(call, {}), groups_(groups), experts_(experts), threads_(threads) {}

  using ServerBidiStream::BeginReading;

 private:
  void OnRequest(v1::JoinGroupRequest& request) override {
    // `request` stays valid until ReadNext.
    threads_->Run([this, &request] {
      Serve(request);
      ReadNext();
    });
  }

  void Serve(const v1::JoinGroupRequest& request) {
    absl::StatusOr<GroupMessage> message = FromProto(request);
    if (!message.ok()) return End(message.status());
    if (std::holds_alternative<JoinRequest>(*message) == member_.has_value()) {
      return End(MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                           "the first message of a stream joins a group, and no other does",
                           {{"field", "JoinGroupRequest.message"}}));
    }
    if (auto* join = std::get_if<JoinRequest>(&*message)) join->attach.caller = caller();
    std::visit([this](const auto& part) { Serve(part); }, *message);
  }
  void Serve(const JoinRequest& request) {
    const absl::Status granted = experts_->CheckGranted(request);
    if (!granted.ok()) return End(granted);
    auto joined = groups_->Join(request, this);
    if (!joined.ok()) return End(joined.status());
    member_ = joined->first;
    Write(ToProto(GroupAnswer(std::move(joined->second))));
    const absl::Status announced = groups_->Announce(*member_);
    if (!announced.ok()) End(announced);
  }
  void Serve(const GroupKeys& keys) {
    const absl::Status taken = groups_->TakeKeys(*member_, keys);
    if (!taken.ok()) End(taken);
  }
  void Serve(const BindRequest& request) {
    Write(ToProto(GroupAnswer(BindAnswer{request.epoch, groups_->Bind(*member_, request)})));
  }
  void Serve(const ReleaseRequest& request) { groups_->Release(*member_, request); }

  void OnSourceKeys(const SourceKeys& keys) override { Write(ToProto(GroupAnswer(keys))); }
  void OnReady() override { Write(ToProto(GroupAnswer(GroupReady()))); }
  void OnGroupEnded(const absl::Status& why) override { End(why); }

  // Whatever ended the stream: no sink is called afterwards.
  void OnStreamDone() override {
    if (member_.has_value()) groups_->Leave(*member_);
  }

  GroupService* const groups_;
  const DirectExperts* const experts_;
  ThreadPool* const threads_;
  std::optional<GroupService::MemberId> member_;  // used by one request at a time
};

}  // namespace

grpc::ServerBidiReactor<v1::JoinGroupRequest, v1::JoinGroupResponse>* ServeGroup(
    const StreamCall& call, GroupService* groups, const DirectExperts* experts,
    ThreadPool* threads) {
  auto* stream = new GroupServerStream(call, groups, experts, threads);  // deletes itself
  stream->BeginReading();
  return stream;
}

}  // namespace switchyard
