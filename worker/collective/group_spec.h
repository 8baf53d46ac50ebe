// The device's view of a group that a plan makes.
#pragma once

#include "core/resolve/collective_group.h"
#include "worker/device/exchange.h"

namespace switchyard {

inline ExchangeSpec SpecOf(const CollectiveGroup& group) {
  return {.shape = group.shape,
          .ranks = group.workers + group.sources,
          .expert_ranks = group.workers,
          .tokens_max = group.tokens_max,
          .wire = group.wire,
          .unit = group.row_of_each_expert ? CombineUnit::kPerExpert : CombineUnit::kPerWorker};
}

}  // namespace switchyard
