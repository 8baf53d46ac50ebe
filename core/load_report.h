// The rows that the experts of a worker have served lately, as a part of its heartbeats.
//
// A report has what was served since the one before, and not a sum: so that the coordinator keeps
// nothing for each worker, and neither a restart of it nor one of the worker looks like a burst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"

namespace switchyard {

struct ExpertLoad {
  LayerId layer;
  ExpertId expert;
  std::uint32_t rows = 0;
  friend bool operator==(const ExpertLoad&, const ExpertLoad&) = default;
};

struct LoadReport {
  std::string deployment;
  Epoch epoch;
  // Ascending by layer; those that served no row are left out.
  std::vector<ExpertLoad> experts;
  friend bool operator==(const LoadReport&, const LoadReport&) = default;
};

// Bounds of one heartbeat: all entries take at most 8 bytes of it each, so that it stays a small
// message (services/grpc/grpc_constants.h). The rest is in the next one.
inline constexpr std::size_t kLoadReportsMax = 64;
inline constexpr std::size_t kLoadExpertsMax = 24576;

}  // namespace switchyard
