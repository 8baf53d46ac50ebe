#include "core/resolve/dtype_override.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/resolve/dtype_option.h"

namespace switchyard {
namespace {

bool IsFor(const DtypeOverride& candidate, const OverridePlace& place) {
  return (candidate.model.empty() || candidate.model == place.model) &&
         (!candidate.layer || *candidate.layer == place.layer) &&
         (!candidate.phase || *candidate.phase == place.phase);
}

int Specificity(const DtypeOverride& candidate) {
  // Powers of two: a layer outweighs a model and a phase together, as the header orders them.
  return (candidate.layer ? 4 : 0) + (candidate.model.empty() ? 0 : 2) + (candidate.phase ? 1 : 0);
}

absl::string_view ChoiceName(const DtypeOverride& candidate) {
  return candidate.dtype ? DispatchDtypeName(*candidate.dtype) : "auto";
}

}  // namespace

// Equal overrides that are equally specific are no conflict: files may repeat themselves.
absl::StatusOr<const DtypeOverride*> PickOverride(std::span<const DtypeOverride> overrides,
                                                  const OverridePlace& place) {
  const DtypeOverride* best = nullptr;
  const DtypeOverride* rival = nullptr;
  for (const DtypeOverride& candidate : overrides) {
    if (!IsFor(candidate, place)) continue;
    if (best == nullptr || Specificity(candidate) > Specificity(*best)) {
      best = &candidate;
      rival = nullptr;
    } else if (Specificity(candidate) == Specificity(*best) && candidate.dtype != best->dtype) {
      // Kept until the end, because a more specific override may still settle it.
      rival = &candidate;
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
