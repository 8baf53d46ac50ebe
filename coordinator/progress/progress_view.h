// Progress as operators see it: of workers that load an epoch, and of checkpoints that the
// coordinator reads. Plain data, part of CoordinatorView (coordinator/view.h); the functions are
// pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/progress/rate_meter.h"
#include "coordinator/progress/staging_meters.h"
#include "core/base/clock.h"
#include "core/control_messages.h"

namespace switchyard {

enum class StagingStep : std::uint8_t {
  // PREPARE has not been sent.
  kWaiting = 0,
  // It has, and the worker has not begun.
  kAsked = 1,
  kLoading = 2,
  kPrepared = 3,
  kCommitted = 4,
};

// The speed of something, as far as it is known.
struct Pace {
  std::int64_t bytes_per_second = 0;  // 0: nothing moves, or not known so far
  std::optional<Duration> left;       // likewise
  Duration still{};                   // for how long nothing has moved
};
Pace PaceOf(const RateMeter& bytes, std::int64_t total, TimePoint now);

// How far one worker is with one epoch.
struct StagingView {
  std::string worker;
  StagingStep step = StagingStep::kWaiting;
  StagingReport progress;  // the last one; the counts are 0 before the worker loads
  Pace pace;
  // In kWaiting and kAsked: "disconnected"; empty: nothing keeps it from loading.
  std::string waits_for;
};

// The worker's own report. Not loading any more: everything is there.
StagingView ViewOf(const std::string& worker, const StagingMeters::Metered& metered, TimePoint now);

// "34 of 48 experts, 1.2 of 1.7 GiB, 0.4 GiB/s, 1 s left"; "not begun"; "prepared".
std::string TextOf(const StagingView& view);

// The checkpoint of an apply that runs.
struct ReadingView {
  std::string model;
  std::string checkpoint;
  std::int64_t bytes_done = 0;
  std::int64_t bytes = 0;  // 0: not known so far
  Pace pace;
  bool dry_run = false;
};

// "reading /models/b (1.2 of 1.7 GiB, 0.4 GiB/s, 1 s left)".
std::string TextOf(const ReadingView& view);

}  // namespace switchyard
