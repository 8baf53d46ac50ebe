#include "examples/qwen3_moe/router.h"

#include <algorithm>
#include <cmath>

namespace switchyard::qwen3_moe {
namespace {

// exp(logit - largest) for each expert: probabilities up to one common factor.
void Exponentials(std::span<const float> logits, std::vector<float>& out) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  out.resize(logits.size());
  for (std::size_t e = 0; e < logits.size(); ++e) out[e] = std::exp(logits[e] - largest);
}

// Strictly, so that the earlier of equals stays.
bool Beats(float challenger, float holder) {
  return challenger > holder || (std::isnan(holder) && !std::isnan(challenger));
}

void WeighFrom(std::span<const float> exponentials, const RouterRule& rule, const RowRouting& row) {
  float sum = 0;
  if (rule.normalise) {
    for (const std::int32_t id : row.ids) sum += exponentials[static_cast<std::size_t>(id)];
  } else {
    for (const float value : exponentials) sum += value;
  }
  for (std::size_t k = 0; k < rule.top_k; ++k) {
    row.weights[k] = exponentials[static_cast<std::size_t>(row.ids[k])] / sum;
  }
}

}  // namespace

void WeighRow(std::span<const float> logits, const RouterRule& rule, const RowRouting& row) {
  std::vector<float> exponentials;
  Exponentials(logits, exponentials);
  WeighFrom(exponentials, rule, row);
}

void RouteRow(std::span<const float> logits, const RouterRule& rule, const RowRouting& out) {
  std::vector<float> exponentials;
  Exponentials(logits, exponentials);
  // top_k passes instead of a sort, which NaN would break: every pass ends on a valid id.
  std::vector<bool> taken(logits.size(), false);
  for (std::size_t k = 0; k < rule.top_k; ++k) {
    std::size_t best = logits.size();
    for (std::size_t e = 0; e < logits.size(); ++e) {
      if (taken[e]) continue;
      if (best == logits.size() || Beats(logits[e], logits[best])) best = e;
    }
    taken[best] = true;
    out.ids[k] = static_cast<std::int32_t>(best);
  }
  WeighFrom(exponentials, rule, out);
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
