#include "coordinator/history/applied_record.h"

#include <utility>

namespace switchyard {

AppliedRecord::AppliedRecord(DeploymentRecord record, Revisions kept, Epoch serving)
    : record_(std::make_shared<const DeploymentRecord>(std::move(record))),
      planned_(record_),
      revisions_(std::move(kept)),
      served_(revisions_.ServedBy(serving)) {}

void AppliedRecord::Set(DeploymentRecord record, Revisions kept) {
  record_ = std::make_shared<const DeploymentRecord>(std::move(record));
  planned_ = record_;
  revisions_ = std::move(kept);
}

void AppliedRecord::MarkDeleting(bool at_once) {
  const bool planned = plans_record();
  DeploymentRecord marked = *record_;
  marked.deleting = true;
  marked.deleting_at_once = at_once;
  record_ = std::make_shared<const DeploymentRecord>(std::move(marked));
  if (planned) planned_ = record_;
}

void AppliedRecord::ChoosePlanned(bool refused) {
  const Revision* served = revisions_.Find(served_);
  if (!refused || served == nullptr || served_ == record_->revision) {
    planned_ = record_;
    return;
  }
  // Its facts are large, and this is asked at every step.
  if (!plans_record() && planned_->revision == served_) return;
  DeploymentRecord former{.spec = served->spec, .facts = *served->facts};
  former.grant_key = record_->grant_key;
  former.revision = served_;
  planned_ = std::make_shared<const DeploymentRecord>(std::move(former));
}

bool AppliedRecord::SetServed(std::uint64_t revision, Epoch epoch) {
  const bool news = served_ != revision;
  served_ = revision;
  revisions_.MarkServed(revision, epoch);
  return news;
}

const ModelFacts& AppliedRecord::ServedFacts() const {
  const Revision* served = revisions_.Find(served_);
  return served == nullptr ? record_->facts : *served->facts;
}

std::string AppliedRecord::ServedCheckpoint() const {
  const Revision* served = revisions_.Find(served_);
  return served == nullptr ? "" : served->spec.checkpoint;
}

}  // namespace switchyard
