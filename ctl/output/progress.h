// How far changes are, for 'syctl describe' and for waits: workers that load an epoch, a checkpoint
// that the coordinator reads. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "google/protobuf/repeated_field.h"

#include "core/cli/progress_line.h"
#include "switchyard/v1/coordinator.pb.h"
#include "switchyard/v1/progress.pb.h"

namespace switchyard::ctl {

// A line for each worker of the epoch that a deployment prepares; empty without any.
std::string StagingByWorker(const google::protobuf::RepeatedPtrField<v1::Staging>& staging);
// A line for each epoch that a worker prepares; empty without any.
std::string StagingByEpoch(const google::protobuf::RepeatedPtrField<v1::Staging>& staging);

// "/models/b: 1.2 of 1.7 GiB, 412.0 MiB/s, 2 s left".
std::string ReadingText(const v1::CheckpointReading& reading);

// Returns what a wait for the deployment waits for: the checkpoint that is read, or else the
// workers that load, in one sum. The last of them decides how much time is left. Unset: neither.
std::optional<ProgressFacts> ProgressOf(const v1::Deployment& deployment);

}  // namespace switchyard::ctl
