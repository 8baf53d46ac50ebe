// The load of experts over the last minutes: rows by layer and expert, and by worker and layer, in
// intervals of two seconds.
//
// Memory: one interval of 61 layers x 256 experts x 32 workers takes 70 KB, and 12 KB for the times
// of each kind of work, so that ten minutes of decode and prefill are 28 MB. An interval without a
// row takes none. All deployments together are bounded by LoadLimits::bytes_max; the oldest
// intervals go first. Nothing is stored. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/wall_time.h"
#include "core/ids.h"
#include "core/load_report.h"
#include "core/work_times.h"

namespace switchyard {

struct LoadLimits {
  Duration interval = std::chrono::seconds(2);
  std::uint64_t intervals = 300;  // of each deployment
  std::size_t bytes_max = std::size_t{64} << 20;
};

struct WorkerLoad {
  std::string id;
  std::vector<std::uint32_t> rows;  // [layers]
  std::vector<WorkTimes> times;     // of all its deployments; empty: it reports none
};
struct LoadSample {
  // Counts intervals since the coordinator started, from 1, also those without a row.
  std::uint64_t number = 0;
  WallTime begin{};
  Duration duration{};              // shorter than the interval for the one that runs
  std::vector<std::uint32_t> rows;  // [layers, experts]
  std::vector<WorkerLoad> workers;  // those that reported
};

// The layers and experts that the samples of a deployment have.
struct LoadShape {
  std::vector<LayerId> layers;  // ascending
  std::int32_t experts = 0;
  friend bool operator==(const LoadShape&, const LoadShape&) = default;
};

// The newest `limit` samples with number > after and, unless `before` is 0, number < before.
struct LoadQuery {
  std::uint64_t after = 0;
  std::uint64_t before = 0;
  std::size_t limit = 16;
};
struct LoadView {
  LoadShape shape;          // empty: nothing has been served lately
  std::uint64_t first = 0;  // the oldest number that is kept; 0: none
  std::uint64_t last = 0;   // the newest
  std::vector<std::shared_ptr<const LoadSample>> samples;  // ascending by number
};

class LoadHistory {
 public:
  explicit LoadHistory(LoadLimits limits, TimePoint start) : limits_(limits), start_(start) {}

  // Entries of layers and experts that `shape` does not have are ignored. Another shape than the
  // one before begins anew.
  void Add(const LoadShape& shape, const std::string& worker, const LoadReport& report,
           TimePoint now, WallTime wall_time);
  // Adds the times of a worker of the deployment. As above for another `shape`.
  void AddTimes(const std::string& deployment, const LoadShape& shape, const std::string& worker,
                const std::vector<WorkTimes>& times, TimePoint now, WallTime wall_time);
  // Forgets the deployments for which `keep` is false.
  void KeepOnly(const std::function<bool(const std::string& deployment)>& keep);
  [[nodiscard]] LoadView View(const std::string& deployment, const LoadQuery& query,
                              TimePoint now) const;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Ring {
    LoadShape shape;
    std::deque<std::shared_ptr<LoadSample>> samples;
  };
  [[nodiscard]] std::uint64_t NumberAt(TimePoint now) const;
  // The deployment's ring, empty if `shape` is another than before.
  Ring& RingOf(const std::string& deployment, const LoadShape& shape);
  // The sample of this interval, made if necessary.
  LoadSample& Current(Ring* ring, TimePoint now, WallTime wall_time);
  void PopOldest(Ring* ring);
  // Drops what is too old, and the oldest of all while there is too much.
  void Bound(TimePoint now);

  const LoadLimits limits_;
  const TimePoint start_;
  std::map<std::string, Ring> rings_;  // by deployment
  std::size_t bytes_ = 0;
};

}  // namespace switchyard
