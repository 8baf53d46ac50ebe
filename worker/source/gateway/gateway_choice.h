// Where to open a session next: in turn at a gateway that the caller named and at a worker of the
// session's plan, each of which is a gateway too; both kinds round and round. A caller may be
// unable to reach the workers' own addresses, so those that it named come every other time.
// Thread-compatible.
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
  [[nodiscard]] const std::string& Peek() const;
  void Advance();

  const std::vector<std::string> named_;
  std::vector<std::string> others_;  // of the plan, without those of named_
  std::size_t next_named_ = 0;
  std::size_t next_other_ = 0;
  bool other_is_next_ = false;
};

}  // namespace switchyard
