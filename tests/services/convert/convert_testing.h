// Helpers for the tests of conversions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::testing {

inline constexpr std::uint64_t kSeed = 20261121;
inline constexpr int kRounds = 300;

template <typename Proto>
Proto ThroughBytes(const Proto& proto) {
  Proto out;
  EXPECT_TRUE(out.ParseFromString(proto.SerializeAsString()));
  return out;
}

// make(random) -> message; what ToProto writes, FromProto reads back equal, through bytes.
template <typename Make>
void ExpectRoundTrips(Make make) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const auto message = make(random);

    const auto back = FromProto(ThroughBytes(ToProto(message)));

    ASSERT_THAT(back, IsOk()) << "seed " << kSeed << " round " << round;
    ASSERT_TRUE(*back == message) << "seed " << kSeed << " round " << round;
  }
}

// BAD_REQUEST whose text and metadata name `field`.
template <typename T>
void ExpectRefuses(const absl::StatusOr<T>& result, const std::string& field) {
  EXPECT_THAT(result, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  const auto metadata = MetadataOf(result.status());
  EXPECT_EQ(metadata.count("field") > 0 ? metadata.at("field") : "", field);
  EXPECT_NE(std::string(result.status().message()).find(field), std::string::npos)
      << result.status();
}

}  // namespace switchyard::testing
