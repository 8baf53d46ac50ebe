// The handle of switchyard_worker.h: what clients of the process need of a worker, and the rest.
#pragma once

#include <memory>

#include "worker/collective/source_rank.h"

struct sy_worker {
  struct Parts;
  sy_worker();
  ~sy_worker();

  std::shared_ptr<switchyard::RankHost> rank_host;  // constant once the handle is given out
  std::unique_ptr<Parts> parts;
};
