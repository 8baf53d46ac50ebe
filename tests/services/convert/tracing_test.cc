#include "services/convert/tracing.h"

#include <limits>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(TracingTest, ComesBackAsItWent) {
  const TraceSettings in{.ratio = 0.01, .endpoint = "collector:4317"};
  v1::Tracing wire;
  Encode(in, &wire);
  Decoder at("Registered");
  TraceSettings out;
  Decode(at, wire, &out);
  SY_EXPECT_OK(at.status());
  EXPECT_EQ(out, in);
}

TEST(TracingTest, RefusesWhatIsNoPart) {
  for (const double ratio : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    v1::Tracing wire;
    wire.set_ratio(ratio);
    Decoder at("Registered");
    TraceSettings out;
    Decode(at, wire, &out);
    EXPECT_THAT(at.status(), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  }
}

}  // namespace
}  // namespace switchyard
