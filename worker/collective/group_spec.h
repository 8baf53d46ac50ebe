// A group as its session asks for it, and as the device sees it.
#pragma once

#include "core/resolve/collective_group.h"
#include "core/session_messages.h"
#include "worker/device/exchange.h"

namespace switchyard {

inline ExchangeSpec SpecOf(const CollectiveGroup& group) {
  return {.shape = group.shape,
          .ranks = group.ranks(),
          .expert_ranks = group.workers,
          .tokens_max = group.tokens_max,
          .wire = group.wire,
          .unit = group.row_of_each_expert ? CombineUnit::kPerExpert : CombineUnit::kPerWorker};
}

inline CollectiveDemand DemandOf(const SessionGrant& grant) {
  return {.phase = grant.request.phase,
          .mode = grant.request.mode.value_or(DispatchMode::kNormal),
          .source = grant.request.source,
          .max_tokens = grant.request.max_tokens,
          .sources = grant.group.sources,
          .hosts = grant.group.hosts,
          .combine_dtype = grant.request.combine_dtype};
}

}  // namespace switchyard
