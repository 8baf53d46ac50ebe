// Converts what the coordinator keeps of the past to the wire. Views are only encoded, because
// clients print the protos themselves.
#pragma once

#include "coordinator/history/journal.h"
#include "coordinator/history/revisions.h"
#include "coordinator/view.h"
#include "core/base/wall_time.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

void EncodeTime(WallTime in, google::protobuf::Timestamp* out);
// `in` is a revision of `deployment`.
void Encode(const Revision& in, const DeploymentView& deployment, v1::Revision* out);

void Encode(const JournalEntry& in, v1::Event* out);
void Encode(const SessionView& in, v1::Session* out);

}  // namespace switchyard
