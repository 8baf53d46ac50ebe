#include "coordinator/history/revisions.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/spec/deployment_record.h"
#include "core/base/canonical_io.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr std::uint32_t kFormat = 1;

// Everything but number and epoch, which the store compares and changes, and the checkpoint, which
// it keeps apart. `spec` is a record without facts, and the checkpoint one without a spec, so that
// both can be read in every format that records had.
template <typename Io, typename RevisionT, typename SpecT>
void Walk(Io& io, RevisionT& revision, SpecT& spec) {
  std::int64_t applied_ms = revision.applied.time_since_epoch().count();
  io.Int(applied_ms);
  io.Int(revision.rollback_to);
  io.String(revision.refusal);
  io.String(spec);
  if constexpr (!std::is_const_v<RevisionT>) {
    revision.applied = WallTime(std::chrono::milliseconds(applied_ms));
  }
}

absl::Status Damaged(std::uint64_t number) {
  return MakeError(absl::StatusCode::kDataLoss, Reason::kStoreWrite,
                   absl::StrFormat("stored revision %d is damaged, or a later version wrote it; "
                                   "restore the store from a copy or start with an empty one",
                                   number));
}

absl::StatusOr<std::shared_ptr<const ModelFacts>> ReadCheckpoint(
    const StoredRevision& stored, const std::map<Sha256Digest, std::string>& checkpoints,
    ReadCheckpoints* read) {
  std::shared_ptr<const ModelFacts>& facts = (*read)[stored.checkpoint];
  if (facts != nullptr) return facts;
  const auto found = checkpoints.find(stored.checkpoint);
  if (found == checkpoints.end() || Sha256(found->second) != stored.checkpoint) {
    return Damaged(stored.number);
  }
  SY_ASSIGN_OR_RETURN(DeploymentRecord record, ParseDeploymentRecord(found->second));
  facts = std::make_shared<const ModelFacts>(std::move(record.facts));
  return facts;
}

}  // namespace

const Revision* Revisions::Find(std::uint64_t number) const {
  const auto at = std::ranges::find(*list_, number, &Revision::number);
  return at == list_->end() ? nullptr : &*at;
}

std::uint64_t Revisions::ServedBy(Epoch epoch) const {
  if (epoch.value == 0) return 0;
  // The newest, because a revision may have the plan of the one before it, under the same number.
  const auto at = std::find_if(list_->rbegin(), list_->rend(), [epoch](const Revision& revision) {
    return revision.served == epoch;
  });
  return at == list_->rend() ? 0 : at->number;
}

absl::StatusOr<const Revision*> Revisions::RollbackTarget(const std::string& deployment,
                                                          std::uint64_t current,
                                                          std::uint64_t to) const {
  const auto number = [](std::string* out, const Revision& one) {
    absl::StrAppend(out, one.number);
  };
  if (to != 0) {
    if (const Revision* found = Find(to)) return found;
    return MakeError(absl::StatusCode::kNotFound, Reason::kBadRequest,
                     absl::StrFormat("deployment %s has no revision %d; these are kept: %s",
                                     deployment, to, absl::StrJoin(*list_, ", ", number)),
                     {{"deployment", deployment}, {"revision", absl::StrCat(to)}});
  }
  // After a rollback the one before may be what there is already.
  const Revision* now = Find(current);
  const auto at = std::find_if(list_->rbegin(), list_->rend(), [&](const Revision& one) {
    const bool same = now != nullptr && one.spec == now->spec && *one.facts == *now->facts;
    return one.number < current && one.served.value != 0 && !same;
  });
  if (at != list_->rend()) return &*at;
  return MakeError(absl::StatusCode::kNotFound, Reason::kBadRequest,
                   absl::StrFormat("deployment %s has no other revision before %d that has served; "
                                   "these are kept: %s",
                                   deployment, current, absl::StrJoin(*list_, ", ", number)),
                   {{"deployment", deployment}});
}

std::shared_ptr<const ModelFacts> Revisions::Share(const ModelFacts& facts) const {
  const auto same = std::find_if(list_->rbegin(), list_->rend(),
                                 [&facts](const Revision& one) { return *one.facts == facts; });
  return same != list_->rend() ? same->facts : std::make_shared<const ModelFacts>(facts);
}

std::vector<std::uint64_t> Revisions::Surplus(std::size_t kept, std::uint64_t serving) const {
  std::vector<std::uint64_t> surplus;
  const std::size_t former = kept > 0 ? kept - 1 : 0;
  for (std::size_t i = 0; i + former < list_->size(); ++i) {
    if ((*list_)[i].number != serving) surplus.push_back((*list_)[i].number);
  }
  return surplus;
}

void Revisions::Add(Revision revision, const std::vector<std::uint64_t>& forget) {
  List next;
  std::ranges::copy_if(*list_, std::back_inserter(next), [&](const Revision& one) {
    return one.number != revision.number && std::ranges::count(forget, one.number) == 0;
  });
  next.push_back(std::move(revision));
  list_ = std::make_shared<const List>(std::move(next));
}

void Revisions::MarkServed(std::uint64_t number, Epoch epoch) {
  List next = *list_;
  for (Revision& one : next) {
    if (one.number == number) one.served = epoch;
  }
  list_ = std::make_shared<const List>(std::move(next));
}

NewRevision ToStored(const Revision& revision) {
  CanonicalWriter writer;
  writer.Int(kFormat);
  const std::string spec = CanonicalBytes(DeploymentRecord{.spec = revision.spec});
  Walk(writer, revision, spec);
  return {revision.number, writer.Take(),
          CanonicalBytes(DeploymentRecord{.spec = {}, .facts = *revision.facts})};
}

absl::StatusOr<Revision> FromStored(const StoredRevision& stored,
                                    const std::map<Sha256Digest, std::string>& checkpoints,
                                    ReadCheckpoints* read) {
  CanonicalReader reader(stored.revision);
  std::uint32_t format = 0;
  reader.Int(format);
  Revision revision;
  std::string spec;
  Walk(reader, revision, spec);
  if (format != kFormat || !reader.ok()) return Damaged(stored.number);
  SY_ASSIGN_OR_RETURN(DeploymentRecord record, ParseDeploymentRecord(spec));
  revision.number = stored.number;
  revision.served = stored.served;
  revision.spec = std::move(record.spec);
  SY_ASSIGN_OR_RETURN(revision.facts, ReadCheckpoint(stored, checkpoints, read));
  return revision;
}

}  // namespace switchyard
