// The revisions of one deployment: everything that it was applied as, numbered from 1.
//
// Each apply that changes the specification, or finds other weights in its checkpoint, makes one,
// and so does each rollback. A revision never changes. It has the hash of every weight, so that a
// rollback serves what was served then or nothing: workers refuse a folder that has other weights
// by now. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/spec/deployment.h"
#include "coordinator/store/state_store.h"
#include "core/base/hash.h"
#include "core/base/wall_time.h"
#include "core/ids.h"

namespace switchyard {

struct Revision {
  std::uint64_t number = 0;
  DeploymentSpec spec;
  std::shared_ptr<const ModelFacts> facts;  // never null; revisions of one checkpoint share it
  WallTime applied{};                       // the epoch of the clock: not known
  // It was made by a rollback to this one; 0: it was applied.
  std::uint64_t rollback_to = 0;
  // Why no workers could serve it; empty: some could.
  std::string refusal = {};
  // The last epoch whose plan was made from it; 0: it never served.
  Epoch served = {};
};

class Revisions {
 public:
  using List = std::vector<Revision>;

  // `list` ascends by number.
  explicit Revisions(List list = {}) : list_(std::make_shared<const List>(std::move(list))) {}

  // Ascending by number. The list itself never changes: later ones are other lists.
  [[nodiscard]] const std::shared_ptr<const List>& list() const { return list_; }
  // Null: it is not kept, or never was.
  [[nodiscard]] const Revision* Find(std::uint64_t number) const;
  // The one that the serving epoch was made from; 0: not known.
  [[nodiscard]] std::uint64_t ServedBy(Epoch epoch) const;
  // Where to go back to from `current`: to revision `to`; for 0, to the newest one before `current`
  // that has served and is not the same. Errors: kNotFound (BAD_REQUEST) naming those that are
  // kept.
  [[nodiscard]] absl::StatusOr<const Revision*> RollbackTarget(const std::string& deployment,
                                                               std::uint64_t current,
                                                               std::uint64_t to) const;
  // `facts`, or equal ones that a revision has already.
  [[nodiscard]] std::shared_ptr<const ModelFacts> Share(const ModelFacts& facts) const;

  // The numbers to drop when another one is added: all but the newest `kept`, that one included,
  // and the one that serves.
  [[nodiscard]] std::vector<std::uint64_t> Surplus(std::size_t kept, std::uint64_t serving) const;
  void Add(Revision revision, const std::vector<std::uint64_t>& forget);
  void MarkServed(std::uint64_t number, Epoch epoch);

 private:
  std::shared_ptr<const List> list_;
};

// The form in which the store keeps it.
NewRevision ToStored(const Revision& revision);
// Checkpoints that are read already, so that revisions share them.
using ReadCheckpoints = std::map<Sha256Digest, std::shared_ptr<const ModelFacts>>;
// Errors: kDataLoss (STORE_WRITE) for anything that ToStored did not make.
absl::StatusOr<Revision> FromStored(const StoredRevision& stored,
                                    const std::map<Sha256Digest, std::string>& checkpoints,
                                    ReadCheckpoints* read);

}  // namespace switchyard
