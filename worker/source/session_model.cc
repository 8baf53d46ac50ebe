#include "worker/source/session_model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

absl::Status CheckSameModel(const Plan& opened, const Plan& now) {
  if (opened.manifest == now.manifest && opened.shape == now.shape) return absl::OkStatus();
  const std::string how = opened.model == now.model
                              ? absl::StrCat("other weights or another shape of ", now.model)
                              : absl::StrCat(now.model, " in place of ", opened.model);
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged,
                   absl::StrFormat("deployment %s serves %s since epoch %d; open another session",
                                   now.deployment, how, now.epoch.value),
                   {{"deployment", now.deployment}, {"epoch", absl::StrCat(now.epoch.value)}});
}

}  // namespace switchyard
