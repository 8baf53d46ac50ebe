#include "worker/source/source_pool.h"

#include <algorithm>
#include <utility>

namespace switchyard {

SourcePool::SourcePool(std::unique_ptr<Source> first, MakeSource further)
    : further_(std::move(further)) {
  members_.push_back({std::move(first)});
}

SourcePool::~SourcePool() = default;

std::size_t SourcePool::Idlest() const {
  const auto fewer = [](const Member& a, const Member& b) { return a.sessions < b.sessions; };
  return static_cast<std::size_t>(std::min_element(members_.begin(), members_.end(), fewer) -
                                  members_.begin());
}

std::shared_ptr<Source> SourcePool::Take() {
  const MutexLock lock(mutex_);
  std::size_t index = Idlest();
  if (members_[index].sessions > 0 && members_.size() < kSourcesMax && further_ != nullptr) {
    // Without one, for lack of descriptors for instance, the session shares a source, which works.
    if (auto made = further_(); made.ok()) {
      index = members_.size();
      members_.push_back({*std::move(made)});
    }
  }
  ++members_[index].sessions;
  return {members_[index].source.get(), [this, index](Source* /*source*/) { GiveBack(index); }};
}

void SourcePool::GiveBack(std::size_t index) {
  const MutexLock lock(mutex_);
  --members_[index].sessions;
}

TransportStats SourcePool::stats() {
  std::vector<Source*> sources;
  {
    const MutexLock lock(mutex_);
    for (const Member& member : members_) sources.push_back(member.source.get());
  }
  TransportStats all;
  for (Source* source : sources) {
    const TransportStats one = source->transport_stats();
    for (std::size_t i = 0; i < all.drops.size(); ++i) all.drops[i] += one.drops[i];
    all.frames_in += one.frames_in;
    all.frames_out += one.frames_out;
    all.late_wakes += one.late_wakes;
    all.links_open += one.links_open;
    all.ring_bytes += one.ring_bytes;
  }
  return all;
}

}  // namespace switchyard
