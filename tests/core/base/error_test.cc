#include "core/base/error.h"

#include <set>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(ErrorTest, ReasonNamesAreUniqueAndRoundTrip) {
  std::set<std::string> names;
  for (const Reason reason : AllReasons()) {
    EXPECT_TRUE(names.insert(std::string(ReasonName(reason))).second) << ReasonName(reason);
    EXPECT_EQ(ReasonFromName(ReasonName(reason)), reason);
    EXPECT_EQ(ReasonFromNumber(static_cast<std::uint32_t>(reason)), reason);
  }
  EXPECT_FALSE(ReasonFromName("NO_SUCH_REASON").has_value());
  EXPECT_FALSE(ReasonFromNumber(99999).has_value());
}

TEST(ErrorTest, CarriesReasonAndMetadataThroughAnnotate) {
  const absl::Status status =
      Annotate(MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape, "bad",
                         {{"layer", "7"}, {"text", "two\nlines \\ and a slash"}}),
               "worker w1");

  EXPECT_EQ(status.message(), "worker w1: bad");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), Reason::kBadShape);
  EXPECT_EQ(MetadataOf(status).at("layer"), "7");
  EXPECT_EQ(MetadataOf(status).at("text"), "two\nlines \\ and a slash");
  EXPECT_EQ(MetadataOf(WithMetadata(status, "epoch", "3")).at("epoch"), "3");
}

TEST(ErrorTest, PlainStatusHasNoReason) {
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), Reason::kUnspecified);
  EXPECT_TRUE(MetadataOf(absl::OkStatus()).empty());
}

}  // namespace
}  // namespace switchyard
