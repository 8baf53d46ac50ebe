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
  paused_ = std::exchange(other.paused_, false);
  id_ = std::exchange(other.id_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

void CallerUse::Share::GiveBack() {
  Pause();
  use_ = nullptr;
}

void CallerUse::Share::Pause() {
  if (use_ == nullptr || std::exchange(paused_, true)) return;
  use_->Uncount(id_, tokens_);
}

void CallerUse::Share::Resume() {
  if (use_ == nullptr || !std::exchange(paused_, false)) return;
  use_->Count(id_, tokens_);
}

void CallerUse::Count(const std::string& id, std::uint64_t tokens) {
  Amount& amount = by_id_[id];
  ++amount.sessions;
  amount.tokens += tokens;
}

void CallerUse::Uncount(const std::string& id, std::uint64_t tokens) {
  const auto at = by_id_.find(id);
  at->second.tokens -= tokens;
  if (--at->second.sessions == 0) by_id_.erase(at);
}

CallerUse::Amount CallerUse::Of(const Tenant& tenant) const {
  Amount open;
  for (const std::string& each : tenant.ids) {
    const auto at = by_id_.find(each);
    if (at == by_id_.end()) continue;
    open.sessions += at->second.sessions;
    open.tokens += at->second.tokens;
  }
  return open;
}

absl::Status CallerUse::CheckReturn(const Tenant* tenant, const std::string& id,
                                    std::int32_t tokens) const {
  if (tenant == nullptr || Of(*tenant).sessions < kReturnedMax) return absl::OkStatus();
  return Check(tenant, id, tokens);
}

absl::Status CallerUse::Check(const Tenant* tenant, const std::string& id,
                              std::int32_t tokens) const {
  if (tenant == nullptr) return absl::OkStatus();
  const Amount open = Of(*tenant);
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
  share.use_ = this;
  share.id_ = id;
  share.tokens_ = TokensOf(tokens);
  Count(id, share.tokens_);
  return share;
}

}  // namespace switchyard
