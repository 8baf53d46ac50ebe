#include "core/tracing/trace_hub.h"

#include <utility>

namespace switchyard {

std::shared_ptr<StepTracer> TraceHub::MakeTracer() {
  auto ring = std::make_shared<TraceRing>();
  const MutexLock lock(mutex_);
  rings_.push_back(ring);
  return std::make_shared<StepTracer>(std::move(ring));
}

void TraceHub::Take(std::size_t most, std::vector<TraceRecord>* records) {
  const MutexLock lock(mutex_);
  // A record from each in turn, until a whole round finds nothing.
  std::size_t empty = 0;
  TraceRecord record;
  while (records->size() < most && empty < rings_.size()) {
    next_ = (next_ + 1) % rings_.size();
    if (rings_[next_]->Pop(&record)) {
      records->push_back(record);
      empty = 0;
    } else {
      ++empty;
    }
  }
  if (empty < rings_.size()) return;
  std::erase_if(rings_, [this](const std::shared_ptr<TraceRing>& ring) {
    mutex_.AssertHeld();
    // In this order: what a tracer wrote last is there once it is known to have gone.
    if (!ring->closed() || !ring->empty()) return false;
    dropped_before_ += ring->dropped();
    return true;
  });
}

std::uint64_t TraceHub::dropped() const {
  const MutexLock lock(mutex_);
  std::uint64_t dropped = dropped_before_;
  for (const auto& ring : rings_) dropped += ring->dropped();
  return dropped;
}

}  // namespace switchyard
