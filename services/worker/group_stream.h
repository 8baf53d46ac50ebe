// A worker's end of one JoinGroup stream: a source's place in a group, which lives as long as the
// stream.
#pragma once

#include "services/grpc/server_streams.h"
#include "services/grpc/thread_pool.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {

class DirectExperts;
class GroupService;

// The reactor of one call; deletes itself. `groups`, `experts` and `threads` outlive it. Requests
// are served in order, on `threads`, since they take memory of a device.
grpc::ServerBidiReactor<v1::JoinGroupRequest, v1::JoinGroupResponse>* ServeGroup(
    const StreamCall& call, GroupService* groups, const DirectExperts* experts,
    ThreadPool* threads);

}  // namespace switchyard
