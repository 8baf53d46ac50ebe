#include "model/routing/shared_expert.h"

#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

absl::Status BadShape(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                   absl::StrCat("shared expert: ", what));
}

bool Overlap(std::span<const float> a, std::span<const float> b) {
  // std::less orders pointers into different arrays; `<` would be undefined.
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

absl::Status Check(const SharedExpertInputs& in, std::span<const float> y) {
  const auto hidden = static_cast<std::size_t>(in.hidden);
  if (in.hidden < 1 || y.size() % hidden != 0) {
    return BadShape(absl::StrFormat("%d values are not a multiple of %d", y.size(), in.hidden));
  }
  if (in.routed.size() != y.size() || in.shared.size() != y.size()) {
    return BadShape(absl::StrFormat("y has %d values, routed %d and shared %d; give as many",
                                    y.size(), in.routed.size(), in.shared.size()));
  }
  if (!in.gate.empty() && in.gate.size() != y.size() / hidden) {
    return BadShape(absl::StrFormat("%d gates for %d rows", in.gate.size(), y.size() / hidden));
  }
  if (Overlap(y, in.routed) || Overlap(y, in.shared) || Overlap(y, in.gate)) {
    return BadShape("y overlaps an input; give it memory of its own");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddSharedExpert(const SharedExpertInputs& inputs, std::span<float> y) {
  if (const absl::Status fits = Check(inputs, y); !fits.ok()) return fits;
  const auto hidden = static_cast<std::size_t>(inputs.hidden);
  for (std::size_t t = 0; t < y.size() / hidden; ++t) {
    // The sigmoid once a row: it is the same for all of its values.
    const float gate = inputs.gate.empty() ? 1.0F : 1.0F / (1.0F + std::exp(-inputs.gate[t]));
    const float* const routed = inputs.routed.data() + t * hidden;
    const float* const shared = inputs.shared.data() + t * hidden;
    float* const out = y.data() + t * hidden;
    for (std::size_t i = 0; i < hidden; ++i) {
      out[i] = inputs.routed_scaling * routed[i] + gate * shared[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace switchyard
