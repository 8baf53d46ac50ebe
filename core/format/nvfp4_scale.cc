#include "core/format/nvfp4_scale.h"

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::StatusOr<float> Checked(float global_scale) {
  SY_RETURN_IF_ERROR(CheckGlobalScale(global_scale));
  return global_scale;
}

}  // namespace

absl::Status CheckGlobalScale(float global_scale) {
  // Written so that NaN fails too.
  if (global_scale >= kGlobalScaleMin && global_scale <= kGlobalScaleMax) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("NVFP4 global scale ", global_scale,
                                " does not lie between 2^-100 and 2^100; check the checkpoint's "
                                "input scales or calibrate anew"),
                   {{"global_scale", absl::StrCat(global_scale)}});
}

// An amax of 0 gives infinity here, which Checked refuses.
absl::StatusOr<float> GlobalScaleFromAmax(float amax) { return Checked(kNvfp4Range / amax); }

absl::StatusOr<float> GlobalScaleFromModelOpt(float scale) { return Checked(1.0F / scale); }

}  // namespace switchyard
