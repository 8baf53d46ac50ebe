#include "core/resolve/dtype_override.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/resolve/dtype_option.h"

namespace switchyard {
namespace {

bool IsFor(const DtypeOverride& wish, const OverridePlace& place) {
  return (wish.model.empty() || wish.model == place.model) &&
         (!wish.layer || *wish.layer == place.layer) && (!wish.phase || *wish.phase == place.phase);
}

int Specificity(const DtypeOverride& wish) {
  return (wish.layer ? 4 : 0) + (wish.model.empty() ? 0 : 2) + (wish.phase ? 1 : 0);
}

absl::string_view ChoiceName(const DtypeOverride& wish) {
  return wish.dtype ? DispatchDtypeName(*wish.dtype) : "auto";
}

}  // namespace

absl::StatusOr<const DtypeOverride*> PickOverride(std::span<const DtypeOverride> wishes,
                                                  const OverridePlace& place) {
  const DtypeOverride* best = nullptr;
  const DtypeOverride* rival = nullptr;
  for (const DtypeOverride& wish : wishes) {
    if (!IsFor(wish, place)) continue;
    if (best == nullptr || Specificity(wish) > Specificity(*best)) {
      best = &wish;
      rival = nullptr;
    } else if (Specificity(wish) == Specificity(*best) && wish.dtype != best->dtype) {
      rival = &wish;
    }
  }
  if (rival == nullptr) return best;
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrFormat("layer %d, phase %s: %s asks for %s and %s for %s; keep one of them",
                      place.layer.value, PhaseName(place.phase), best->source, ChoiceName(*best),
                      rival->source, ChoiceName(*rival)),
      {{"field", kDtypeOption}, {"layer", absl::StrCat(place.layer.value)}});
}

}  // namespace switchyard
