// A runner's report about itself, for `status` and for session reports. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/resolve/staging_bytes.h"
#include "core/session_messages.h"

namespace switchyard {

// The time that steps spent in each stage: nanoseconds, summed over all steps of the session.
// Waiting for replies is not counted.
struct StepTimes {
  std::uint64_t steps = 0;
  std::uint64_t plan_ns = 0;
  std::uint64_t encode_ns = 0;
  std::uint64_t send_ns = 0;
  std::uint64_t sum_ns = 0;
  // Steps among them whose rows the device of the tensors encoded and summed. Their times include
  // waiting for it.
  std::uint64_t device_steps = 0;
};

// One attachment of the p2p binding. Counters are totals since the attachment was made, over all
// its lives.
struct AttachmentStatus {
  std::string worker_id;
  bool ready = false;
  // source -> worker: "mapped", "messages", "inproc", "direct"; "device" if rows of steps on a
  // device go from device to device, and those of others through mapped rings
  std::string request_path;
  std::string reply_path;     // worker -> source
  std::string why_messages;   // why one of them is "messages"; else empty
  std::string why_no_device;  // why none of them is "device", where it might be; else empty
  std::uint32_t credits = 0;
  std::uint32_t credits_free = 0;
  StagingBytes slot_bytes;  // of a request slot and of a reply slot; 0 for "direct"
  std::uint64_t frames_sent = 0;
  std::uint64_t replies_late = 0;
  std::uint64_t replies_unexpected = 0;
  // The reason of the last loss; empty if there was none.
  std::string last_error;
};

// A copy, taken at one moment: nothing in it changes any more.
struct RunnerStatus {
  SessionGrant grant;  // with the plan that steps run on now; the granted plan until there is one
  Epoch epoch;         // of the plan that steps run on now; 0 while the session opens
  bool watching = false;  // new plans arrive; false while the coordinator cannot be reached
  std::uint32_t steps_in_flight = 0;
  std::string gateway_worker;  // id of the worker that serves the steps; gateway binding only
  StepTimes times;
  std::vector<AttachmentStatus> attachments;  // p2p binding only
};

}  // namespace switchyard
