// Random placements and router answers for tests of everything that moves rows. Seeded: print the
// seed (SCOPED_TRACE) and a failure can be had again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/placement_map.h"
#include "core/rng.h"
#include "worker/routing/dispatch_plan.h"

namespace switchyard::testing {

struct RoutingShape {
  std::int32_t tokens = 0;
  std::int32_t top_k = 1;
  std::int32_t experts = 1;
};

// What a router would answer: [tokens, top_k] ids and weights.
struct Routing {
  RoutingShape shape;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  [[nodiscard]] RoutedBatch batch() const {
    return {.ids = ids, .tokens = shape.tokens, .top_k = shape.top_k};
  }
};

// `skew` 0 is uniform, 1 prefers low ids strongly. `none` is the share of -1 ids.
inline Routing RandomRouting(Rng& rng, const RoutingShape& shape, double skew, double none) {
  Routing routing{.shape = shape, .ids = {}, .weights = {}};
  std::vector<std::int32_t> pool(static_cast<std::size_t>(shape.experts));
  for (std::int32_t t = 0; t < shape.tokens; ++t) {
    std::iota(pool.begin(), pool.end(), 0);
    for (std::int32_t k = 0; k < shape.top_k; ++k) {
      const double u = rng.Uniform();
      const double place = skew * u * u * u * u + (1.0 - skew) * u;
      const auto left = pool.size() - static_cast<std::size_t>(k);
      const auto pick = static_cast<std::size_t>(place * static_cast<double>(left));
      const bool absent = rng.Uniform() < none;
      routing.ids.push_back(absent ? -1 : pool[pick]);
      routing.weights.push_back(static_cast<float>(0.05 + rng.Uniform()));
      std::rotate(pool.begin() + static_cast<std::ptrdiff_t>(pick),
                  pool.begin() + static_cast<std::ptrdiff_t>(pick) + 1, pool.end());
    }
  }
  return routing;
}

// Every expert on one random worker and, with chance `replicas`, on a second one; slots in random
// order of experts. Workers may end up without experts.
inline LayerPlacement RandomPlacement(Rng& rng, std::int32_t experts, std::int32_t workers,
                                      double replicas) {
  std::vector<std::pair<std::int32_t, std::int32_t>> homes;  // (worker, expert)
  for (std::int32_t e = 0; e < experts; ++e) {
    const auto first = static_cast<std::int32_t>(rng.Below(static_cast<std::uint64_t>(workers)));
    homes.emplace_back(first, e);
    if (workers > 1 && rng.Uniform() < replicas) homes.emplace_back((first + 1) % workers, e);
  }
  for (std::size_t i = homes.size(); i > 1; --i) std::swap(homes[i - 1], homes[rng.Below(i)]);
  std::stable_sort(homes.begin(), homes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  LayerPlacement placement;
  std::int32_t slot = 0;
  for (std::size_t i = 0; i < homes.size(); ++i) {
    slot = i > 0 && homes[i].first == homes[i - 1].first ? slot + 1 : 0;
    placement.experts.push_back(
        {ExpertId{homes[i].second}, WorkerOrdinal{homes[i].first}, SlotId{slot}});
  }
  return placement;
}

}  // namespace switchyard::testing
