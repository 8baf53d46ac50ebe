// The sources of a client, or of a gateway: its sessions are spread over several, because the steps
// of one source take turns. A prefill session then does not hold up the decode session of its
// engine, and each has a core for planning, encoding and sums. A source costs its transport (four
// ports of each network device, some megabytes) and three threads, asleep while it has nothing to
// do. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "worker/source/source.h"

namespace switchyard {

// More sessions share sources between them.
inline constexpr std::size_t kSourcesMax = 4;

class SourcePool {
 public:
  // Makes a further source. Called by one thread at a time.
  using MakeSource = std::function<absl::StatusOr<std::unique_ptr<Source>>()>;

  // `further` may be null: then `first` is the only source.
  SourcePool(std::unique_ptr<Source> first, MakeSource further);
  // REQUIRES: what Take has given out is gone.
  ~SourcePool();
  SourcePool(const SourcePool&) = delete;
  SourcePool& operator=(const SourcePool&) = delete;

  // A source for one session, which holds it until it ends: one without a session, a new one, or,
  // when there are kSourcesMax or none can be made, the one with the fewest. Making one takes some
  // milliseconds, during which other calls wait.
  std::shared_ptr<Source> Take();
  // Summed over all sources.
  [[nodiscard]] TransportStats stats();

 private:
  struct Member {
    std::unique_ptr<Source> source = nullptr;
    std::size_t sessions = 0;
  };
  // The index of the source with the fewest sessions, the first of several.
  [[nodiscard]] std::size_t Idlest() const SY_REQUIRES(mutex_);
  void GiveBack(std::size_t index);

  const MakeSource further_;
  Mutex mutex_;
  std::vector<Member> members_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
