// A MoeProvider that remembers, as one hash, every answer that it passes on.
//
// Two runs with equal digests got the same rows bit for bit, whatever placement and transport they
// came over. Batches may be split differently: rows count, calls do not. Not thread-safe.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/hash.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

class HashedMoe final : public MoeProvider {
 public:
  // `inner` outlives this.
  explicit HashedMoe(MoeProvider& inner);

  [[nodiscard]] const MoePath& prefill() const override { return prefill_; }
  [[nodiscard]] const MoePath& decode() const override { return decode_; }
  [[nodiscard]] std::string Describe() const override { return inner_.Describe(); }
  absl::StatusOr<ExpertsReport> Report() override { return inner_.Report(); }

  // Of all y so far, in order. Call once, last.
  [[nodiscard]] Sha256Digest Finish() { return hash_.Finish(); }

 private:
  [[nodiscard]] MoePath Through(const MoePath& path);

  MoeProvider& inner_;
  Sha256Stream hash_;
  MoePath prefill_;
  MoePath decode_;
};

}  // namespace switchyard::qwen3_moe
