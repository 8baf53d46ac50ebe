// Where to open a session next: at the gateways that the caller named, in their order, and after
// them at the workers of the session's plan, each of which is a gateway too; then from the first
// again. Thread-compatible.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/plan.h"

namespace switchyard {

class GatewayChoice {
 public:
  // `named` are "host:port", at least one.
  explicit GatewayChoice(std::vector<std::string> named) : named_(std::move(named)) {}

  void SetPlan(const Plan& plan);
  // How many there are.
  [[nodiscard]] std::size_t size() const { return named_.size() + others_.size(); }
  // The next one; `but` only if there is no other.
  std::string Next(const std::string& but);

 private:
  [[nodiscard]] const std::string& At(std::size_t index) const {
    return index < named_.size() ? named_[index] : others_[index - named_.size()];
  }

  const std::vector<std::string> named_;
  std::vector<std::string> others_;  // of the plan, without those of named_
  std::size_t next_ = 0;
};

}  // namespace switchyard
