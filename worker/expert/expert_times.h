// How long the parts of a worker's requests take: cells that the threads of the work write and a
// scrape reads. Thread-safe; nothing here waits or allocates.
//
// The labels are a class of work, a mode, a dtype and a path. None is a layer, an expert or a peer,
// so that the number of cells does not depend on the model or on the number of workers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/histogram.h"
#include "core/dispatch_mode.h"
#include "core/format/dtype.h"
#include "worker/device/stream.h"
#include "worker/transport/transport.h"

namespace switchyard {

inline constexpr std::size_t kWorkClasses = 2;
inline constexpr std::size_t kDispatchModes = 2;
inline constexpr std::size_t kDispatchDtypes = 4;

// The times of one class of work and mode.
struct BatchTimes {
  Histogram dispatch;  // from a request's arrival to the start of its batch
  Histogram compute;   // of a batch, from its start until its end is seen
  Histogram combine;   // from there until all its results are sent
  Histogram own;       // of a chunk of a gateway's own experts; a part of `compute`
  Histogram rows{kCountBounds};
};

// The times of loading epochs.
struct LoadTimes {
  Histogram loaded{kLongDurationBounds};  // from the beginning of a staging until it is ready
  Histogram failed{kLongDurationBounds};  // until it failed or was stopped
  std::atomic<std::uint64_t> bytes{0};    // of weights, also of stagings that failed
};

class ExpertTimes {
 public:
  // Paths of links: kMapped, kMessages, kInProcess.
  static constexpr std::size_t kPaths = 3;

  BatchTimes& Of(WorkClass work_class, DispatchMode mode) {
    return batches_[IndexOf(work_class, mode)];
  }
  [[nodiscard]] const BatchTimes& Of(WorkClass work_class, DispatchMode mode) const {
    return batches_[IndexOf(work_class, mode)];
  }
  // From a request's arrival until its result is sent; errors are not measured.
  Histogram& Request(WorkClass work_class, DispatchMode mode, DispatchDtype dtype, LinkPath path) {
    return requests_[IndexOf(work_class, mode)][static_cast<std::size_t>(dtype)][IndexOf(path)];
  }
  [[nodiscard]] const Histogram& Request(WorkClass work_class, DispatchMode mode,
                                         DispatchDtype dtype, LinkPath path) const {
    return requests_[IndexOf(work_class, mode)][static_cast<std::size_t>(dtype)][IndexOf(path)];
  }

 private:
  static std::size_t IndexOf(WorkClass work_class, DispatchMode mode) {
    return static_cast<std::size_t>(work_class) * kDispatchModes + static_cast<std::size_t>(mode);
  }
  // An open link is none of kNone.
  static std::size_t IndexOf(LinkPath path) {
    return std::max(static_cast<std::size_t>(path), std::size_t{1}) - 1;
  }

  std::array<BatchTimes, kWorkClasses * kDispatchModes> batches_;
  std::array<std::array<std::array<Histogram, kPaths>, kDispatchDtypes>,
             kWorkClasses * kDispatchModes>
      requests_;
};

}  // namespace switchyard
