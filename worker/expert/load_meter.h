// Tells what the experts of this worker have served since it was asked last.
//
// It reads the counters that the epochs' layers have anyway (layer_load.h), on the thread of the
// caller: the data thread is not asked, and does not know.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/ids.h"
#include "core/load_report.h"
#include "worker/expert/layer_load.h"
#include "worker/expert/layer_runtime.h"

namespace switchyard {

// Thread-safe.
class LoadMeter {
 public:
  // Keeps the counters of the epoch, and not its weights.
  void Activate(const EpochRuntime& runtime);
  // The next report is the last one about the epoch.
  void Drop(absl::string_view deployment, Epoch epoch);
  // Returns the rows since the last call that was not too early; at most kLoadExpertsMax entries.
  // Empty if the last one was less than a second ago, or if nothing was served. Linear in the
  // experts that the worker holds.
  [[nodiscard]] std::vector<LoadReport> Take(TimePoint now);

 private:
  struct Layer {
    LayerId layer;
    std::vector<ExpertId> experts;        // by slot
    std::vector<std::uint32_t> reported;  // by slot
    std::shared_ptr<const LayerLoad> load;
  };
  struct Held {
    std::string deployment;
    Epoch epoch;
    bool dropped = false;
    std::vector<Layer> layers;
  };
  // Adds to `report` until `room` is used up.
  static void Read(Layer* layer, std::size_t* room, LoadReport* report);

  Mutex mutex_;
  std::vector<Held> held_ SY_GUARDED_BY(mutex_);
  TimePoint next_ SY_GUARDED_BY(mutex_){};
};

}  // namespace switchyard
