// A worker's end of one Attach stream: one attachment, which lives as long as the stream.
#pragma once

#include "core/base/clock.h"
#include "core/base/log.h"
#include "services/grpc/server_streams.h"
#include "services/grpc/thread_pool.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {

class ExpertService;

// How long the data thread may take to answer an attach, bind or release. Generous: it answers
// between two polls, and only a stuck thread takes longer.
inline constexpr Duration kAttachTimeout = std::chrono::seconds(10);

// Attach makes rings, which takes long. Bind and Release are what sessions need to follow an epoch
// within its grace, and so never wait behind those.
struct AttachThreads {
  ThreadPool attach;
  ThreadPool bind;
};

// The reactor of one call; deletes itself. `experts` and `threads` outlive it. Requests are handled
// in order, on `threads`; the next one is read when the last is done. `log`, which may be null,
// gets a line at debug for each attachment that begins, is refused or ends.
grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* ServeAttach(const StreamCall& call,
                                                                            ExpertService* experts,
                                                                            AttachThreads* threads,
                                                                            Logger* log);

}  // namespace switchyard
