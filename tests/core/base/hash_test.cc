#include "core/base/hash.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

// Vectors of FIPS 180-4's examples.
TEST(HashTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Sha256("").ToHex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abc").ToHex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").ToHex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256(std::string(1'000'000, 'a')).ToHex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HashTest, PiecesOfAnySizeGiveTheHashOfTheWhole) {
  constexpr std::uint64_t kSeed = 5;
  SeededRng rng(kSeed);
  std::vector<std::byte> data(10'000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(rng.Next());

  Sha256Stream stream;
  for (std::size_t at = 0; at < data.size();) {
    const std::size_t size = std::min<std::size_t>(rng.Below(300), data.size() - at);
    stream.Update(std::span(data).subspan(at, size));
    at += size;
  }

  EXPECT_EQ(stream.Finish(), Sha256(std::span<const std::byte>(data))) << "seed " << kSeed;
}

TEST(HashTest, HexRoundTrips) {
  const Sha256Digest digest = Sha256("abc");

  SY_ASSERT_OK_AND_ASSIGN(const Sha256Digest back, Sha256Digest::FromHex(digest.ToHex()));

  EXPECT_EQ(back, digest);
}

TEST(HashTest, RefusesHexThatIsNotADigest) {
  const std::string good = Sha256("abc").ToHex();
  std::string upper = good;
  upper[0] = 'B';
  std::string other = good;
  other[63] = 'g';

  EXPECT_EQ(Sha256Digest::FromHex("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Sha256Digest::FromHex(good.substr(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Sha256Digest::FromHex(upper).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Sha256Digest::FromHex(other).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace switchyard
