// Counts the work of a worker's experts since the process started.
#pragma once

#include <cstdint>

namespace switchyard {

// Counts the requests of an ExpertEngine, which came through attachments.
struct ExpertStats {
  std::uint64_t requests = 0;    // answered with a result
  std::uint64_t rows = 0;        // of those
  std::uint64_t batches = 0;     // that ran, also those that failed
  std::uint64_t refused = 0;     // answered with an error
  std::uint64_t duplicates = 0;  // requests for a credit that was busy; dropped
  std::uint64_t nan_rows = 0;
  std::uint64_t attachments = 0;  // open now
};

// Counts the chunks of DirectExperts: those of sessions whose source is this process.
struct DirectStats {
  std::uint64_t chunks = 0;  // that have a result
  std::uint64_t rows = 0;    // of those
  std::uint64_t nan_rows = 0;
  std::uint64_t failed = 0;
};

}  // namespace switchyard
