#include "worker/source/session_channel.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

class NoGroupStream final : public GroupStream {
  void SendKeys(const GroupKeys& /*keys*/) override {}
  void Bind(const BindRequest& /*request*/) override {}
  void Release(const ReleaseRequest& /*request*/) override {}
};

}  // namespace

std::unique_ptr<GroupStream> SessionChannel::JoinGroup(const std::string& /*endpoint*/,
                                                       const JoinRequest& /*request*/,
                                                       GroupStreamSink* sink) {
  sink->OnGroupEnded(
      MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                "this channel to workers has no groups; use binding p2p (--transport auto)"));
  return std::make_unique<NoGroupStream>();
}

}  // namespace switchyard
