#include "services/convert/progress.h"

namespace switchyard {

void Encode(const StagingReport& in, v1::StagingReport* out) {
  out->set_deployment(in.deployment);
  out->set_epoch(in.epoch.value);
  out->set_experts_done(static_cast<std::uint32_t>(in.experts_done));
  out->set_experts(static_cast<std::uint32_t>(in.experts));
  out->set_bytes_done(static_cast<std::uint64_t>(in.bytes_done));
  out->set_bytes(static_cast<std::uint64_t>(in.bytes));
}

void Decode(Decoder& at, const v1::StagingReport& in, StagingReport* out) {
  out->deployment = in.deployment();
  out->epoch.value = in.epoch();
  at.Int("experts_done", in.experts_done(), &out->experts_done);
  at.Int("experts", in.experts(), &out->experts);
  at.Int("bytes_done", in.bytes_done(), &out->bytes_done);
  at.Int("bytes", in.bytes(), &out->bytes);
  // Operators would read of 200 percent, and of negative times.
  if (in.experts_done() > in.experts()) at.Refuse("experts_done", "must be at most experts");
  if (in.bytes_done() > in.bytes()) at.Refuse("bytes_done", "must be at most bytes");
}

}  // namespace switchyard
