#include "core/gdn_facts.h"

#include "absl/strings/string_view.h"

namespace switchyard {

GdnFacts GdnFactsOf(const DeviceProfile& profile) {
  GdnFacts facts;
  // By row and not by kind: other GPUs lack the kernel.
  if (absl::string_view(profile.name) == "cuda_sm90") facts.verify = GdnVerifyKernel::kFlashinfer;
  facts.grid_2d = profile.kind != DeviceKind::kAscend;
  return facts;
}

}  // namespace switchyard
