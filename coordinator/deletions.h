// Deployments that an operator deletes.
//
//   request --> the record is marked as deleting --> no session opens, those that are open go on
//     --(the last one closes, or `now`)--> it is removed from the store; sessions that are open end
//     --> its workers free its epochs --> it is gone
//
// Both writes are awaited, so that a coordinator that restarts goes on where this one was; the mark
// says whether it waits for sessions. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/deployment_controller.h"
#include "coordinator/effects.h"
#include "coordinator/events.h"
#include "coordinator/outbox.h"
#include "coordinator/placement/memory_ledger.h"
#include "coordinator/session_table.h"
#include "coordinator/spec/options.h"
#include "core/base/clock.h"

namespace switchyard {

class Deletions {
 public:
  using Deployments = std::map<std::string, DeploymentController>;

  // All outlive it. `deployments` are those that the store had; sources of those that were being
  // deleted have sources_return from `now` on to come back.
  Deletions(const CoordinatorOptions* options, Deployments* deployments, SessionTable* sessions,
            MemoryLedger* memory, Outbox* out)
      : options_(options),
        deployments_(deployments),
        sessions_(sessions),
        memory_(memory),
        out_(out) {}
  // Once, after the deployments of the store are there. `high_water`: its deleted_high_water.
  void Resume(Epoch high_water, TimePoint now);

  // `deployment` exists. Answered with AnswerDeployment, once the record is marked. Asked again, it
  // may add `now`. One with id 0 is the coordinator's own, and is not answered.
  void Request(const DeleteRequested& request, DeploymentController& deployment, TimePoint now);
  // False when the write is not one of a deletion.
  bool OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now);
  // Takes every step that is due, and removes what is gone from the deployments. True when one is:
  // its workers have room again.
  bool Advance(TimePoint now);
  // Adds to the view of one that is being deleted what that waits for.
  void AddTo(DeploymentView* view, TimePoint now) const;
  // The highest number that a deleted deployment has given out: those that are added start above.
  [[nodiscard]] Epoch high_water() const { return high_water_; }
  // Also while the mark is being written.
  [[nodiscard]] bool Has(const std::string& deployment) const {
    return deletions_.contains(deployment);
  }

 private:
  struct Deletion {
    std::vector<RequestId> requests;  // to answer once the record is marked
    bool at_once = false;
    bool marks_at_once = false;  // what `write` stores of it
    WriteId write;               // awaited; 0: none
    bool removing = false;       // `write` removes it from the store, and does not mark it
    bool removed = false;        // from the store
    TimePoint retry_at;          // the write
    TimePoint sources_until;     // until then those of sessions from before a restart may come back
  };
  // Whether it still waits for sessions.
  [[nodiscard]] bool Drains(const std::string& name, const Deletion& deletion, TimePoint now) const;
  // Writes the mark, which may be the second one: this time, it does not wait.
  void WriteMark(const DeploymentController& deployment, Deletion* deletion);
  // The mark is written, or not.
  void OnMarked(const std::string& name, const absl::Status& status, TimePoint now);
  void Answer(RequestId id, const std::string& name, TimePoint now);

  const CoordinatorOptions* options_;
  Deployments* deployments_;
  SessionTable* sessions_;
  MemoryLedger* memory_;
  Outbox* out_;
  std::map<std::string, Deletion> deletions_;
  Epoch high_water_;
};

}  // namespace switchyard
