#include "services/convert/tracing.h"

namespace switchyard {

void Encode(const TraceSettings& in, v1::Tracing* out) {
  out->set_ratio(in.ratio);
  out->set_endpoint(in.endpoint);
}

void Decode(Decoder& at, const v1::Tracing& in, TraceSettings* out) {
  // Not written as two comparisons: NaN has to be refused too.
  if (!(in.ratio() >= 0 && in.ratio() <= 1)) at.Refuse("ratio", "needs a number from 0 to 1");
  out->ratio = in.ratio();
  out->endpoint = in.endpoint();
}

}  // namespace switchyard
