// Counts the work of an ExpertEngine since it was made.
#pragma once

#include <cstdint>

namespace switchyard {

struct ExpertStats {
  std::uint64_t requests = 0;    // answered with a result
  std::uint64_t rows = 0;        // of those
  std::uint64_t batches = 0;     // that ran, also those that failed
  std::uint64_t refused = 0;     // answered with an error
  std::uint64_t duplicates = 0;  // requests for a credit that was busy; dropped
  std::uint64_t nan_rows = 0;
  std::uint64_t attachments = 0;  // open now
};

}  // namespace switchyard
