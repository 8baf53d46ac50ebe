// A MoeProvider that hashes every answer that it passes on.
//
// Equal digests of two runs mean that all rows were bit-equal, so they prove that placement and
// transport do not change results. The digest does not depend on how rows are split into calls. Not
// thread-safe.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/hash.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

class HashedMoe final : public MoeProvider {
 public:
  // `inner` must outlive this object.
  explicit HashedMoe(MoeProvider& inner);

  // The paths of `inner`, with the hash.
  [[nodiscard]] const MoePath& prefill() const override { return prefill_; }
  [[nodiscard]] const MoePath& decode() const override { return decode_; }
  [[nodiscard]] std::string Describe() const override { return inner_.Describe(); }
  absl::StatusOr<ExpertsReport> Report() override { return inner_.Report(); }

  // The digest of all y so far, in order. May be called once, after the last step.
  [[nodiscard]] Sha256Digest Finish() { return hash_.Finish(); }

 private:
  // A path that calls `path` and hashes the result.
  [[nodiscard]] MoePath Through(const MoePath& path);

  MoeProvider& inner_;
  Sha256Stream hash_;
  MoePath prefill_;
  MoePath decode_;
};

}  // namespace switchyard::qwen3_moe
