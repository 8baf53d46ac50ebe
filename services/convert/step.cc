#include "services/convert/step.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "services/convert/decoder.h"
#include "services/convert/plan.h"
#include "services/convert/session.h"
#include "services/grpc/grpc_status.h"

namespace switchyard {
namespace {

template <typename T>
std::string BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::span<const std::byte> ViewOf(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

// Decodes [tokens, top_k] 4-byte numbers. The wire does not carry top_k: any size that is a
// multiple of the tokens is valid here, and the session checks it against the model.
template <typename T>
void DecodeTable(Decoder& at, const char* field, const v1::ForwardStep& in,
                 const std::string& bytes, std::vector<T>* out) {
  static_assert(sizeof(T) == 4);
  const std::size_t tokens = in.tokens();
  const bool whole = tokens == 0 ? bytes.empty() : bytes.size() % (tokens * sizeof(T)) == 0;
  if (!whole) {
    return at.Refuse(field, absl::StrCat("has ", bytes.size(), " bytes, which is not tokens (",
                                         tokens, ") x top-k x 4"));
  }
  // A copy, because the bytes of a proto string need not be aligned for T.
  out->resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out->data(), bytes.data(), bytes.size());
}

void DecodeStep(Decoder& at, const v1::ForwardStep& in, ReceivedStep* out) {
  out->step.step.value = in.step();
  at.Int("layer", in.layer(), &out->step.layer.value);
  at.Int("tokens", in.tokens(), &out->step.tokens);
  DecodeTable(at, "ids", in, in.ids(), &out->ids);
  DecodeTable(at, "weights", in, in.weights(), &out->weights);
  at.Time("deadline", in.deadline(), &out->step.deadline);
  // A mismatch cannot be found later: the session gets both tables with one top-k.
  if (out->ids.size() != out->weights.size()) {
    at.Refuse("weights",
              absl::StrCat("has ", out->weights.size(), " values for ", out->ids.size(), " ids"));
  }
  // x stays in the message: it is the largest part, and its bytes are only copied.
  out->step.x = ViewOf(in.x());
  out->step.ids = out->ids;
  out->step.weights = out->weights;
}

}  // namespace

v1::ForwardRequest ForwardOpen(const OpenSessionRequest& request) {
  v1::ForwardRequest out;
  Encode(request, out.mutable_open());
  return out;
}

v1::ForwardRequest ForwardStep(const GatewayStep& step) {
  v1::ForwardRequest out;
  v1::ForwardStep* message = out.mutable_step();
  message->set_step(step.step.value);
  message->set_layer(static_cast<std::uint32_t>(step.layer.value));
  message->set_tokens(static_cast<std::uint32_t>(step.tokens));
  message->set_x(BytesOf(step.x));
  message->set_ids(BytesOf(step.ids));
  message->set_weights(BytesOf(step.weights));
  EncodeTime(step.deadline, message->mutable_deadline());
  return out;
}

absl::StatusOr<ForwardMessage> FromProto(const v1::ForwardRequest& proto) {
  Decoder at("ForwardRequest");
  if (proto.has_open()) {
    OpenSessionRequest request;
    at.Sub("open", true, [&] { Decode(at, proto.open(), &request); });
    return at.Finish(ForwardMessage(std::move(request)));
  }
  if (proto.has_step()) {
    ReceivedStep step;
    at.Sub("step", true, [&] { DecodeStep(at, proto.step(), &step); });
    return at.Finish(ForwardMessage(std::move(step)));
  }
  at.Refuse("message", "is missing or unknown to this version");
  return at.status();
}

v1::ForwardResponse ForwardOpened(const GatewayGrant& grant) {
  v1::ForwardResponse out;
  Encode(grant.grant, out.mutable_opened()->mutable_grant());
  out.mutable_opened()->set_credits(grant.credits);
  out.mutable_opened()->set_worker_id(grant.worker_id);
  return out;
}

v1::ForwardResponse ForwardResult(const StepAnswer& answer) {
  v1::ForwardResponse out;
  out.mutable_result()->set_step(answer.step.value);
  if (answer.status.ok()) {
    out.mutable_result()->set_y(BytesOf(answer.y));
  } else {
    *out.mutable_result()->mutable_error() = StatusToProto(answer.status);
  }
  return out;
}

// `lost` stays here: it concerns who attaches to the workers, and that is the gateway.
v1::ForwardResponse ForwardNews(const GatewayNews& news) {
  v1::ForwardResponse out;
  v1::ForwardNews* message = out.mutable_news();
  message->set_leaving(news.leaving);
  if (!news.plan.has_value()) return out;
  Encode(news.plan->plan, message->mutable_plan());
  EncodeDigest(news.plan->hash, message->mutable_plan_hash());
  return out;
}

absl::StatusOr<ForwardAnswer> FromProto(const v1::ForwardResponse& proto) {
  Decoder at("ForwardResponse");
  if (proto.has_opened()) {
    GatewayGrant grant;
    at.Sub("opened", true, [&] {
      const v1::ForwardOpened& in = proto.opened();
      at.Sub("grant", in.has_grant(), [&] { Decode(at, in.grant(), &grant.grant); });
      // Without credits, the caller would wait forever.
      if (in.credits() == 0) at.Refuse("credits", "is 0; no step could ever be sent");
      grant.credits = in.credits();
      grant.worker_id = in.worker_id();
    });
    return at.Finish(ForwardAnswer(std::move(grant)));
  }
  if (proto.has_news()) {
    const v1::ForwardNews& in = proto.news();
    GatewayNews news;
    news.leaving = in.leaving();
    at.Sub("news", true, [&] {
      if (!in.has_plan()) return;
      news.plan.emplace();
      at.Sub("plan", true, [&] { Decode(at, in.plan(), &news.plan->plan); });
      at.Digest("plan_hash", in.plan_hash(), &news.plan->hash);
    });
    return at.Finish(ForwardAnswer(std::move(news)));
  }
  if (proto.has_result()) {
    const v1::ForwardResult& in = proto.result();
    StepAnswer answer{StepId{in.step()}, absl::OkStatus(), ViewOf(in.y())};
    if (in.has_error()) {
      at.Sub("result", true, [&] { at.Error("error", true, in.error(), &answer.status); });
      // A failed step has no result; an empty span keeps a caller from reading stale bytes.
      answer.y = {};
    }
    return at.Finish(ForwardAnswer(std::move(answer)));
  }
  at.Refuse("message", "is missing or unknown to this version");
  return at.status();
}

}  // namespace switchyard
