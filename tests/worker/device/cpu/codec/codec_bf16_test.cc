#include "worker/device/cpu/codec/codec_bf16.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kSeed = 41;
constexpr std::byte kPoison{0x5a};

// Gathers `count` rows of `hidden`, in a scrambled order with repeats, to `shift` bytes after a
// line's start, and expects them in order with the bytes around them untouched.
void ExpectGathers(std::size_t count, std::size_t hidden, std::size_t shift) {
  SeededRng rng(kSeed);
  const std::vector<Bf16> source = testing::GaussianBf16(count * hidden + 1, 1.0, rng);
  std::vector<const Bf16*> rows;
  for (std::size_t i = 0; i < count; ++i) {
    rows.push_back(source.data() + 1 + rng.Below(count) * hidden);
  }
  const std::size_t row_bytes = hidden * sizeof(Bf16);
  std::vector<std::byte> wire(count * row_bytes + 128, kPoison);
  const std::size_t at = (64 - reinterpret_cast<std::uintptr_t>(wire.data()) % 64) % 64 + shift;

  Bf16Codec().Encode(rows, static_cast<std::int64_t>(hidden), wire.data() + at, nullptr);

  for (std::size_t i = 0; i < at; ++i) ASSERT_EQ(wire[i], kPoison) << "before, " << i;
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(std::memcmp(wire.data() + at + i * row_bytes, rows[i], row_bytes), 0)
        << "row " << i << " of " << count << ", hidden " << hidden << ", shift " << shift;
  }
  for (std::size_t i = at + count * row_bytes; i < wire.size(); ++i) {
    ASSERT_EQ(wire[i], kPoison) << "after, " << i;
  }
}

TEST(Bf16CodecTest, GathersRowsInTheOrderGiven) {
  ExpectGathers(1, 1, 0);
  ExpectGathers(7, 256, 0);
  ExpectGathers(7, 33, 2);
}

// Enough bytes for stores past the caches; row sizes that are no multiple of a line.
TEST(Bf16CodecTest, GathersPastTheCachesFromTwoMebibytesOn) {
  static_assert(520 * 2048 * 2 > kNonTemporalBytesMin);
  ExpectGathers(520, 2048, 0);
  ExpectGathers(520, 2048, 62);
  ExpectGathers(1100, 1001, 0);
  ExpectGathers(1100, 1001, 34);
  ExpectGathers(70'000, 17, 2);
}

TEST(Bf16CodecTest, DecodesWhatItEncodes) {
  SeededRng rng(kSeed);
  const std::vector<Bf16> in = testing::GaussianBf16(5 * 96, 1.0, rng);
  std::vector<const Bf16*> rows;
  for (std::size_t row = 0; row < 5; ++row) rows.push_back(in.data() + row * 96);
  std::vector<std::byte> wire(5 * 192);
  std::vector<Bf16> out(5 * 96, 0x7fff);
  const Bf16Codec codec;

  codec.Encode(rows, 96, wire.data(), nullptr);
  codec.Decode(wire.data(), nullptr, 5, 96, out.data());

  EXPECT_EQ(out, in);
  EXPECT_EQ(codec.dtype(), DispatchDtype::kBf16);
}

TEST(Bf16CodecTest, EncodesNoRows) {
  Bf16Codec().Encode({}, 256, nullptr, nullptr);
  Bf16Codec().Decode(nullptr, nullptr, 0, 256, nullptr);
}

}  // namespace
}  // namespace switchyard
