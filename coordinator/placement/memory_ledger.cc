#include "coordinator/placement/memory_ledger.h"

#include <set>
#include <tuple>

namespace switchyard {
namespace {

// By id and not by ordinal: the same worker has different ordinals in two plans.
using Held = std::set<std::tuple<std::string, LayerId, ExpertId>>;

void Count(const HeldWeights& weights, Held* counted, BytesByWorker* bytes) {
  if (weights.plan == nullptr) return;
  for (const LayerPlacement& layer : weights.plan->layers) {
    for (const PhysicalExpert& physical : layer.experts) {
      const std::string& id =
          weights.plan->workers[static_cast<std::size_t>(physical.worker.value)].id;
      // Copies of an expert on one worker share its weights.
      if (counted->emplace(id, layer.layer, physical.expert).second) {
        (*bytes)[id] += weights.expert_bytes;
      }
    }
  }
}

}  // namespace

bool ShareWeights(const Plan* a, const Plan* b) {
  return a != nullptr && b != nullptr && a->model == b->model && a->manifest == b->manifest;
}

BytesByWorker BytesOfBoth(const HeldWeights& serving, const HeldWeights& changing) {
  BytesByWorker bytes;
  Held counted;
  Count(serving, &counted, &bytes);
  // An expert of another checkpoint lies beside its former self until the old epoch is dropped.
  if (!ShareWeights(serving.plan, changing.plan)) counted.clear();
  Count(changing, &counted, &bytes);
  return bytes;
}

std::int64_t MemoryLedger::UsedByOthers(const std::string& deployment,
                                        const std::string& worker) const {
  std::int64_t used = 0;
  for (const auto& [name, bytes] : promised_) {
    // A deployment's own promise is not counted: its next plan replaces it.
    const auto it = bytes.find(worker);
    if (name != deployment && it != bytes.end()) used += it->second;
  }
  return used;
}

}  // namespace switchyard
