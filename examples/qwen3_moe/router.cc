#include "examples/qwen3_moe/router.h"

#include "model/routing/top_k.h"

namespace switchyard::qwen3_moe {

void WeighRow(std::span<const float> logits, const RouterRule& rule, const RowRouting& row) {
  SoftmaxWeights(logits, std::span<const std::int32_t>(row.ids), rule.normalize, row.weights);
}

void RouteRow(std::span<const float> logits, const RouterRule& rule, const RowRouting& out) {
  std::vector<std::uint32_t> keys(logits.size());
  TopK(logits, keys, out.ids);
  // Selection and weights are separate, so that verify can weigh another choice of experts.
  WeighRow(logits, rule, out);
}

Routing Router::Route(std::span<const float> x) const {
  const std::size_t tokens = x.size() / gate_.inner();
  Routing routing{.top_k = rule_.top_k,
                  .ids = std::vector<std::int32_t>(tokens * rule_.top_k),
                  .weights = std::vector<float>(tokens * rule_.top_k),
                  .logits = std::vector<float>(tokens * gate_.columns())};
  gate_.Apply(x.data(), tokens, routing.logits.data());
  for (std::size_t t = 0; t < tokens; ++t) {
    RouteRow(std::span(routing.logits).subspan(t * gate_.columns(), gate_.columns()), rule_,
             {.ids = std::span(routing.ids).subspan(t * rule_.top_k, rule_.top_k),
              .weights = std::span(routing.weights).subspan(t * rule_.top_k, rule_.top_k)});
  }
  return routing;
}

}  // namespace switchyard::qwen3_moe
