#include "coordinator/sessions/caller_use.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

std::uint64_t TokensOf(std::int32_t tokens) {
  return static_cast<std::uint64_t>(std::max(tokens, 0));
}

absl::Status AtLimit(const std::string& id, const std::string& text, std::uint64_t have,
                     std::uint32_t limit) {
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
      absl::StrCat("the tenant of ", id, " ", text,
                   "; close sessions that are not needed, or ask the operator for a higher limit"),
      {{"id", id}, {"have", absl::StrCat(have)}, {"limit", absl::StrCat(limit)}});
}

}  // namespace

CallerUse::Share& CallerUse::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  use_ = std::exchange(other.use_, nullptr);
  id_ = std::exchange(other.id_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

void CallerUse::Share::GiveBack() {
  if (use_ == nullptr) return;
  const auto at = use_->by_id_.find(id_);
  at->second.tokens -= tokens_;
  if (--at->second.sessions == 0) use_->by_id_.erase(at);
  use_ = nullptr;
}

absl::Status CallerUse::Check(const Tenant* tenant, const std::string& id,
                              std::int32_t tokens) const {
  if (tenant == nullptr) return absl::OkStatus();
  Amount open;
  for (const std::string& each : tenant->ids) {
    const auto at = by_id_.find(each);
    if (at == by_id_.end()) continue;
    open.sessions += at->second.sessions;
    open.tokens += at->second.tokens;
  }
  if (tenant->sessions_max && open.sessions >= *tenant->sessions_max) {
    return AtLimit(
        id,
        absl::StrCat("has ", open.sessions, " sessions open and may have ", *tenant->sessions_max),
        open.sessions, *tenant->sessions_max);
  }
  if (tenant->tokens_max && open.tokens + TokensOf(tokens) > *tenant->tokens_max) {
    return AtLimit(id,
                   absl::StrCat("has sessions open whose max_tokens add up to ", open.tokens,
                                ", this one would add ", TokensOf(tokens), ", and they may have ",
                                *tenant->tokens_max),
                   open.tokens, *tenant->tokens_max);
  }
  return absl::OkStatus();
}

CallerUse::Share CallerUse::Take(const std::string& id, std::int32_t tokens) {
  Share share;
  if (id.empty()) return share;
  Amount& amount = by_id_[id];
  ++amount.sessions;
  amount.tokens += TokensOf(tokens);
  share.use_ = this;
  share.id_ = id;
  share.tokens_ = TokensOf(tokens);
  return share;
}

}  // namespace switchyard
