// CallerUse counts what callers have open, so that tenants can be held to their limits.
//
// It counts by ids and not by tenants: the file of tenants changes while sessions go on, and what
// is open is then counted for whoever has the id now. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "core/tenants/tenant.h"

namespace switchyard {

class CallerUse {
 public:
  // Sessions of one tenant that CheckReturn lets be open, whatever its limits.
  static constexpr std::uint64_t kReturnedMax = 256;

  // One session's part, which is given back when it goes.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share() { GiveBack(); }
    // Its caller; empty: nobody's.
    [[nodiscard]] const std::string& id() const { return id_; }
    // Not counted until Resume, which counts it again whatever the limits. Repeating is harmless.
    void Pause();
    void Resume();

   private:
    friend class CallerUse;
    void GiveBack();
    CallerUse* use_ = nullptr;
    bool paused_ = false;
    std::string id_;
    std::uint64_t tokens_ = 0;
  };

  CallerUse() = default;
  CallerUse(const CallerUse&) = delete;
  CallerUse& operator=(const CallerUse&) = delete;

  // Whether `id`, a caller of `tenant`, may open a session more, whose largest batch has `tokens`.
  // Null: no limit. Errors: kResourceExhausted (TOO_MANY_SESSIONS), which names the id and the
  // limit and nothing of others. Cost: that of the tenant's ids.
  [[nodiscard]] absl::Status Check(const Tenant* tenant, const std::string& id,
                                   std::int32_t tokens) const;
  // The same for a session that was open when this coordinator started: sessions that exist go on
  // when a limit has been lowered. Not without a bound, since a caller may have kept the grants of
  // sessions that it closed long ago.
  [[nodiscard]] absl::Status CheckReturn(const Tenant* tenant, const std::string& id,
                                         std::int32_t tokens) const;
  // Counts a session. This object outlives the result. Nothing is counted for an empty id.
  Share Take(const std::string& id, std::int32_t tokens);

 private:
  struct Amount {
    std::uint64_t sessions = 0;
    std::uint64_t tokens = 0;
  };
  [[nodiscard]] Amount Of(const Tenant& tenant) const;
  void Count(const std::string& id, std::uint64_t tokens);
  void Uncount(const std::string& id, std::uint64_t tokens);
  std::map<std::string, Amount> by_id_;  // without those that have nothing
};

}  // namespace switchyard
