// One epoch on its way from a number to serving. A deployment has at most one.
//
//   kReserving   the number is being made durable, so that it is never given out again (I10)
//     | written
//   kPreparing   PREPARE is out to every worker of the plan
//     | all ACK                    NACK, a worker lost, time-out --> ABORT
//   kWriting     the plan is being made durable (I2)
//     | written                    not written --> ABORT
//   kCommitting  COMMIT with the plan's hash is out (I3)
//     | all CommitAck              NACK, a worker lost, time-out --> superseded: RETIRE
//   kMarking     "serves" is being made durable
//     | written                    not written --> tried again
//   serves       sources are told; RETIRE of the epoch before
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/deployment.h"
#include "coordinator/stream_ids.h"
#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

enum class ChangePhase : std::uint8_t { kReserving, kPreparing, kWriting, kCommitting, kMarking };

struct EpochChange {
  Epoch epoch;
  ChangePhase phase = ChangePhase::kReserving;
  WriteId write;                           // the write that is on its way; none: no write is
  std::shared_ptr<const PlanUpdate> news;  // from kPreparing on
  // What the plan was made from; the deployment's may be newer. Null after a coordinator's return.
  std::shared_ptr<const DeploymentRecord> record;
  std::uint64_t nonce = 0;
  std::set<std::string> answered;  // workers that ACKed in this phase
  TimePoint deadline;              // for the answers of this phase
  TimePoint retry_at;              // kMarking: when to write again
  absl::Status failure;            // the first NACK of this phase
  std::set<std::string> culprits;  // whose it was

  [[nodiscard]] const Plan& plan() const { return news->plan; }
  [[nodiscard]] EpochKey key() const { return {plan().deployment, epoch}; }
  // Is `id`, in that life, one of the plan's workers? False before there is a plan.
  [[nodiscard]] bool Involves(const std::string& id, const Incarnation& incarnation) const;
  [[nodiscard]] bool AllAnswered() const;
  // Ids of those who have not.
  [[nodiscard]] std::vector<std::string> Missing() const;
  void EnterPhase(ChangePhase next, TimePoint answers_by);
  // "preparing epoch 4: waiting for w1, w3".
  [[nodiscard]] std::string Describe() const;
};

}  // namespace switchyard
