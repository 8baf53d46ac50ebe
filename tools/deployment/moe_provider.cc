#include "tools/deployment/moe_provider.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "examples/qwen3_moe/reference_moe.h"
#include "tools/deployment/open_deployment.h"

namespace switchyard::qwen3_moe {
namespace {

// Bounds the memory of a call; the results do not depend on it.
constexpr std::size_t kReferenceTokensMax = 1024;

class ReferenceProvider final : public MoeProvider {
 public:
  explicit ReferenceProvider(std::shared_ptr<const ReferenceMoe> moe)
      : path_{.run = MakeReferenceMoe(std::move(moe)), .max_tokens = kReferenceTokensMax} {}

  [[nodiscard]] const MoePath& prefill() const override { return path_; }
  [[nodiscard]] const MoePath& decode() const override { return path_; }
  absl::StatusOr<ExpertsReport> Report() override {
    return ExpertsReport{.how = "reference, in this process", .workers = {}};
  }

 private:
  MoePath path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MoeProvider>> OpenMoe(const Checkpoint& checkpoint,
                                                     const DecoderDims& dims,
                                                     const MoeOptions& options) {
  if (options.moe == "reference") {
    if (options.record_amax) {
      return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                       "the reference cannot record magnitudes; use --moe deployment");
    }
    SY_ASSIGN_OR_RETURN(std::shared_ptr<const ReferenceMoe> moe,
                        ReferenceMoe::Load(checkpoint, dims));
    return std::make_unique<ReferenceProvider>(std::move(moe));
  }
  if (options.moe == "deployment") return OpenDeployment(checkpoint.dir(), options);
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat("unknown kind of MoE layer \"", options.moe,
                                "\"; use --moe deployment or --moe reference"));
}

}  // namespace switchyard::qwen3_moe
