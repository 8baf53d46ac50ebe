// A MoeProvider of functions and a report that the test gives.
#pragma once

#include <utility>

#include "absl/status/statusor.h"

#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

class FakeProvider final : public MoeProvider {
 public:
  explicit FakeProvider(const MoeFn& both) : FakeProvider(both, both) {}
  FakeProvider(MoeFn prefill, MoeFn decode)
      : prefill_{.run = std::move(prefill), .max_tokens = 200},
        decode_{.run = std::move(decode), .max_tokens = 1} {}

  [[nodiscard]] const MoePath& prefill() const override { return prefill_; }
  [[nodiscard]] const MoePath& decode() const override { return decode_; }
  absl::StatusOr<ExpertsReport> Report() override { return report; }

  absl::StatusOr<ExpertsReport> report = ExpertsReport{.how = "fake", .workers = {}};

 private:
  MoePath prefill_;
  MoePath decode_;
};

}  // namespace switchyard::qwen3_moe
