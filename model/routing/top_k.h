// The largest of a row of scores and the weights of the chosen: the building blocks of routers.
//
// Order: the larger score first, equal ones by the lower id; -0 equals +0. NaN is below everything,
// -infinity included, so that it is chosen only when nothing else is left: ids are always valid and
// distinct. Plain loops over integers or over one row; no allocation. Ids are std::int32_t or
// std::int64_t. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace switchyard {

// Orders as the score does, in integers; > 0.
std::uint32_t OrderKey(float score);
inline constexpr std::uint32_t kTakenKey = 0;  // below every score

// ids[i] = the i-th of `keys` from the top, best first; keys of the chosen become kTakenKey.
// ids.size() <= keys.size(). Costs ids.size() passes over the row.
template <typename Id>
void TakeTopK(std::span<std::uint32_t> keys, std::span<Id> ids);

// The same over scores. `keys` is room for scores.size() of them; its contents are lost.
template <typename Id>
void TopK(std::span<const float> scores, std::span<std::uint32_t> keys, std::span<Id> ids);

// weights[i] = softmax(logits)[ids[i]]: over all logits, or with `renormalize` over the chosen
// only, which then sum to 1. In FP32, relative to the largest logit that is no NaN, summed in
// order. NaN where the logit is NaN or there is no finite one, and everywhere when +infinity is
// among those that are summed. ids are valid.
template <typename Id>
void SoftmaxWeights(std::span<const float> logits, std::span<const Id> ids, bool renormalize,
                    std::span<float> weights);

}  // namespace switchyard
