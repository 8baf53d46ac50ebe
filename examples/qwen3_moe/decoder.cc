#include "examples/qwen3_moe/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "examples/qwen3_moe/attention.h"
#include "examples/qwen3_moe/experts_call.h"
#include "examples/qwen3_moe/rms_norm.h"

namespace switchyard::qwen3_moe {

// The rows of one pass, one for each token. Allocated once for all layers.
struct Decoder::Activations {
  Activations(const DecoderDims& dims, std::size_t count)
      : tokens(count),
        x(count * dims.hidden),
        normed(count * dims.hidden),
        update(count * dims.hidden),
        query(count * dims.heads * dims.head_dim),
        key(count * dims.kv_heads * dims.head_dim),
        value(count * dims.kv_heads * dims.head_dim),
        attended(count * dims.heads * dims.head_dim) {}

  void AddUpdate() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += update[i];
  }

  std::size_t tokens;
  std::vector<float> x;       // the residual stream
  std::vector<float> normed;  // x after the norm, the input of a block
  std::vector<float> update;  // the output of a block, which is added to x
  std::vector<float> query;
  std::vector<float> key;
  std::vector<float> value;
  std::vector<float> attended;
  std::vector<float> scratch;
};

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Load(const Checkpoint& checkpoint) {
  SY_ASSIGN_OR_RETURN(const DecoderDims dims, DimsOf(checkpoint.config()));
  SY_ASSIGN_OR_RETURN(DecoderWeights weights, LoadDecoderWeights(checkpoint, dims));
  return std::unique_ptr<Decoder>(new Decoder(dims, std::move(weights)));
}

Decoder::Decoder(const DecoderDims& dims, DecoderWeights weights)
    : dims_(dims), weights_(std::move(weights)), rope_(dims.head_dim, dims.rope_theta) {}

KvCache Decoder::MakeCache(std::size_t capacity) const {
  return KvCache({.layers = dims_.layers, .kv_heads = dims_.kv_heads, .head_dim = dims_.head_dim},
                 capacity);
}

const Router& Decoder::router(LayerId layer) const {
  return weights_.layers[static_cast<std::size_t>(layer.value)].router;
}

absl::Status Decoder::CheckCall(const KvCache& cache, const ForwardCall& call) const {
  const auto refuse = [](absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest, what);
  };
  if (call.tokens.empty()) return refuse("no tokens; at least one is required");
  for (std::size_t i = 0; i < call.tokens.size(); ++i) {
    const std::int32_t id = call.tokens[i];
    if (id < 0 || static_cast<std::size_t>(id) >= dims_.vocab) {
      return refuse(
          absl::StrCat("token ", i, " has id ", id, "; the vocabulary is 0 to ", dims_.vocab - 1));
    }
  }
  const std::size_t room = std::min(cache.capacity(), dims_.max_positions) - cache.length();
  if (call.tokens.size() > room) {
    return refuse(absl::StrCat("the sequence of ", cache.length(), " tokens has room for ", room,
                               " more, not ", call.tokens.size(), " (cache ", cache.capacity(),
                               ", model ", dims_.max_positions, " positions); shorten the text"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Decoder::Forward(KvCache& cache, const ForwardCall& call,
                                                    const MoePath& moe) const {
  SY_RETURN_IF_ERROR(CheckCall(cache, call));
  Activations act(dims_, call.tokens.size());
  for (std::size_t t = 0; t < act.tokens; ++t) {
    const auto id = static_cast<std::size_t>(call.tokens[t]);
    std::copy_n(weights_.embedding.begin() + static_cast<std::ptrdiff_t>(id * dims_.hidden),
                dims_.hidden, act.x.begin() + static_cast<std::ptrdiff_t>(t * dims_.hidden));
  }
  for (std::size_t layer = 0; layer < dims_.layers; ++layer) {
    AttentionBlock(layer, cache, act);
    SY_RETURN_IF_ERROR(MoeBlock(layer, moe, act));
  }
  // Only now, after every layer has succeeded: an error above leaves the sequence unchanged.
  cache.Advance(act.tokens);
  return Logits(act.x, call.logits);
}

void Decoder::AttentionBlock(std::size_t layer, KvCache& cache, Activations& act) const {
  const LayerWeights& w = weights_.layers[layer];
  RmsNorm(act.x, w.input_norm, dims_.rms_norm_eps, act.normed.data());
  w.query.Apply(act.normed.data(), act.tokens, act.query.data());
  w.key.Apply(act.normed.data(), act.tokens, act.key.data());
  w.value.Apply(act.normed.data(), act.tokens, act.value.data());
  // Qwen3's QK-norm: a norm over each head, before the rotation.
  RmsNorm(act.query, w.query_norm, dims_.rms_norm_eps, act.query.data());
  RmsNorm(act.key, w.key_norm, dims_.rms_norm_eps, act.key.data());
  const std::size_t query_width = dims_.heads * dims_.head_dim;
  const std::size_t kv_width = dims_.kv_heads * dims_.head_dim;
  for (std::size_t t = 0; t < act.tokens; ++t) {
    // Token by token, because each one attends to those before it; the projections above run for
    // all tokens at once.
    const std::size_t position = cache.length() + t;
    const auto query = std::span(act.query).subspan(t * query_width, query_width);
    const auto key = std::span(act.key).subspan(t * kv_width, kv_width);
    rope_.Turn(position, query);
    rope_.Turn(position, key);
    // A token's own key and value are part of its attention, so Put comes before Attend.
    cache.Put(layer, position, key, std::span(act.value).subspan(t * kv_width, kv_width));
    Attend(cache,
           {.layer = layer,
            .position = position,
            .query = query,
            .out = std::span(act.attended).subspan(t * query_width, query_width)},
           act.scratch);
  }
  w.output.Apply(act.attended.data(), act.tokens, act.update.data());
  act.AddUpdate();
}

absl::Status Decoder::MoeBlock(std::size_t layer, const MoePath& moe, Activations& act) const {
  const LayerWeights& w = weights_.layers[layer];
  RmsNorm(act.x, w.moe_norm, dims_.rms_norm_eps, act.normed.data());
  // The router sees unrounded rows; RunExperts rounds them to BF16 afterwards.
  const Routing routing = w.router.Route(act.normed);
  SY_RETURN_IF_ERROR(RunExperts({.layer = LayerId{static_cast<std::int32_t>(layer)},
                                 .x = act.normed,
                                 .routing = routing,
                                 .y = act.update},
                                moe));
  act.AddUpdate();
  return absl::OkStatus();
}

std::vector<float> Decoder::Logits(std::span<const float> x, LogitsOf which) const {
  if (which == LogitsOf::kLast) x = x.last(dims_.hidden);
  std::vector<float> normed(x.size());
  RmsNorm(x, weights_.final_norm, dims_.rms_norm_eps, normed.data());
  const std::size_t rows = x.size() / dims_.hidden;
  std::vector<float> logits(rows * dims_.vocab);
  weights_.head.Apply(normed.data(), rows, logits.data());
  return logits;
}

}  // namespace switchyard::qwen3_moe
