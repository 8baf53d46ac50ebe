// The router: chooses the experts of each token and their weights. FP32, on unrounded activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "examples/qwen3_moe/panel_matmul.h"

namespace switchyard::qwen3_moe {

// The routing of a batch; each row is a token.
struct Routing {
  std::size_t top_k = 0;
  std::vector<std::int32_t> ids;  // [tokens, top_k], distinct in a row, best first
  std::vector<float> weights;     // [tokens, top_k]
  // Stored although only checks need them: they show how close a choice was.
  std::vector<float> logits;  // [tokens, experts]
};

// How to choose from logits: softmax over all experts, then the top_k largest; of equal ones, the
// lower id. Weights are the probabilities, divided by their sum if `normalize`. A NaN is never
// preferred, and a row of NaNs gets experts 0..top_k-1 with NaN weights, so ids are always valid.
// Implemented with the routing helpers for engines (model/routing/top_k.h).
struct RouterRule {
  std::size_t top_k = 0;  // 1..experts
  bool normalize = false;
};
// The outputs for one row.
struct RowRouting {
  std::span<std::int32_t> ids;  // [top_k]
  std::span<float> weights;     // [top_k]
};
// Chooses and weighs the experts of one row.
void RouteRow(std::span<const float> logits, const RouterRule& rule, const RowRouting& out);

// The weights that RouteRow would set if it had chosen `row.ids`. For checks that try another
// choice.
void WeighRow(std::span<const float> logits, const RouterRule& rule, const RowRouting& row);

// The router of one layer. Immutable.
class Router {
 public:
  Router() = default;
  // `gate`: [experts, hidden].
  Router(PackedMatrix gate, const RouterRule& rule) : gate_(std::move(gate)), rule_(rule) {}

  [[nodiscard]] const RouterRule& rule() const { return rule_; }
  // The width of a row of logits.
  [[nodiscard]] std::size_t experts() const { return gate_.columns(); }
  // `x`: [tokens, hidden]. The routing of a row only depends on that row. Thread-safe.
  [[nodiscard]] Routing Route(std::span<const float> x) const;

 private:
  PackedMatrix gate_;
  RouterRule rule_;
};

}  // namespace switchyard::qwen3_moe
