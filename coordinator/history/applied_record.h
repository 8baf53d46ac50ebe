// The record that a deployment is applied as, the revision that serves, and the one that plans are
// made from. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "coordinator/history/revisions.h"
#include "coordinator/spec/deployment_record.h"
#include "core/ids.h"

namespace switchyard {

class AppliedRecord {
 public:
  // `serving`: the epoch that serves; 0: none.
  AppliedRecord(DeploymentRecord record, Revisions kept, Epoch serving);

  // The record, which is of the newest of the revisions `kept`, is stored.
  void Set(DeploymentRecord record, Revisions kept);
  void MarkDeleting(bool at_once);
  // Plans are made from the record; while that is refused, from the revision that serves, which has
  // to be served on, also when it loses a worker.
  void ChoosePlanned(bool refused);
  // The plan of `epoch`, which serves, is that of `revision`; 0: not known. False: that is no news.
  bool SetServed(std::uint64_t revision, Epoch epoch);

  [[nodiscard]] const DeploymentRecord& record() const { return *record_; }
  // Never null; the record, unless ChoosePlanned has said otherwise.
  [[nodiscard]] const std::shared_ptr<const DeploymentRecord>& planned() const { return planned_; }
  [[nodiscard]] bool plans_record() const { return planned_ == record_; }
  [[nodiscard]] const Revisions& revisions() const { return revisions_; }
  // The one that serves; 0: none, or not known.
  [[nodiscard]] std::uint64_t served() const { return served_; }
  // The facts of the one that serves; those of the record, where that is not known.
  [[nodiscard]] const ModelFacts& ServedFacts() const;
  // The folder of the one that serves; empty: not known.
  [[nodiscard]] std::string ServedCheckpoint() const;

 private:
  std::shared_ptr<const DeploymentRecord> record_;  // never null
  std::shared_ptr<const DeploymentRecord> planned_;
  Revisions revisions_;
  std::uint64_t served_;
};

}  // namespace switchyard
