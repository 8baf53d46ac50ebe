#include "coordinator/progress/progress_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/amount_text.h"

namespace switchyard {
namespace {

// Said instead of a rate from then on: one large expert may take as long.
constexpr Duration kStillShown = std::chrono::seconds(5);

// ", 0.4 GiB/s, 1 s left". Without a rate no time is left: it would be a guess.
void AddPace(const Pace& pace, std::vector<std::string>* parts) {
  if (pace.still >= kStillShown) {
    parts->push_back(absl::StrCat("nothing for ", TimeText(pace.still)));
    return;
  }
  if (pace.bytes_per_second > 0) parts->push_back(RateText(pace.bytes_per_second));
  if (pace.left) parts->push_back(absl::StrCat(TimeText(*pace.left), " left"));
}

std::string LoadingText(const StagingView& view) {
  const StagingReport& progress = view.progress;
  if (progress.experts == 0) return "nothing to load";
  std::vector<std::string> parts{
      absl::StrCat(progress.experts_done, " of ", progress.experts, " experts"),
      ShareText(progress.bytes_done, progress.bytes)};
  if (progress.experts_done < progress.experts) AddPace(view.pace, &parts);
  return absl::StrJoin(parts, ", ");
}

}  // namespace

Pace PaceOf(const RateMeter& bytes, std::int64_t total, TimePoint now) {
  return {.bytes_per_second = bytes.PerSecond(now),
          .left = bytes.Left(total, now),
          .still = bytes.Still(now)};
}

StagingView ViewOf(const std::string& worker, const StagingMeters::Metered& metered,
                   TimePoint now) {
  StagingView view{.worker = worker,
                   .step = StagingStep::kPrepared,
                   .progress = metered.report,
                   .pace = {},
                   .waits_for = ""};
  if (metered.complete()) return view;
  view.step = StagingStep::kLoading;
  view.pace = PaceOf(metered.bytes, metered.report.bytes, now);
  return view;
}

std::string TextOf(const StagingView& view) {
  switch (view.step) {
    case StagingStep::kWaiting:
      return view.waits_for.empty() ? "not asked" : view.waits_for;
    case StagingStep::kAsked:
      return view.waits_for.empty() ? "not begun" : absl::StrCat("not begun; ", view.waits_for);
    case StagingStep::kLoading:
      return LoadingText(view);
    case StagingStep::kPrepared:
      return "prepared";
    case StagingStep::kCommitted:
      return "committed";
  }
  return "";
}

std::string TextOf(const ReadingView& view) {
  std::vector<std::string> parts;
  if (view.bytes > 0) {
    parts.push_back(ShareText(view.bytes_done, view.bytes));
    if (view.bytes_done < view.bytes) AddPace(view.pace, &parts);
  } else {
    parts.push_back("not begun");
  }
  return absl::StrCat("reading ", view.checkpoint, " (", absl::StrJoin(parts, ", "), ")");
}

}  // namespace switchyard
