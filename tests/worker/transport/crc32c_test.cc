#include "worker/transport/crc32c.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

struct Vector {
  const char* name;
  std::vector<std::byte> data;
  std::uint32_t crc;
};

// RFC 3720, appendix B.4.
std::vector<Vector> RfcVectors() {
  std::vector<Vector> vectors;
  vectors.push_back({"zeros", std::vector<std::byte>(32, std::byte{0}), 0x8a9136aaU});
  vectors.push_back({"ones", std::vector<std::byte>(32, std::byte{0xff}), 0x62a8ab43U});
  std::vector<std::byte> rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<std::byte>(i));
  vectors.push_back({"rising", rising, 0x46dd794eU});
  vectors.push_back({"falling", {rising.rbegin(), rising.rend()}, 0x113fdb5cU});
  vectors.push_back(
      {"iscsi read pdu",
       Bytes({0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
              0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
              0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
              0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}),
       0xd9963a56U});
  return vectors;
}

TEST(Crc32cTest, TableGivesTheVectorsOfTheRfc) {
  for (const Vector& vector : RfcVectors()) {
    EXPECT_EQ(Crc32cTable(0, vector.data), vector.crc) << vector.name;
  }
}

TEST(Crc32cTest, InstructionGivesTheVectorsOfTheRfc) {
  if (!HasCrc32cInstruction()) GTEST_SKIP() << "this CPU has no SSE4.2";

  for (const Vector& vector : RfcVectors()) {
    EXPECT_EQ(Crc32cInstruction(0, vector.data), vector.crc) << vector.name;
  }
}

TEST(Crc32cTest, BothWaysAgreeAtEveryLengthAndOffset) {
  if (!HasCrc32cInstruction()) GTEST_SKIP() << "this CPU has no SSE4.2";
  constexpr std::uint64_t kSeed = 3720;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  SeededRng rng(kSeed);
  std::vector<std::byte> data(300);
  for (std::byte& byte : data) byte = static_cast<std::byte>(rng.Next());

  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; begin + size <= data.size(); ++size) {
      const std::span<const std::byte> piece = std::span(data).subspan(begin, size);
      const auto start = static_cast<std::uint32_t>(rng.Next());
      ASSERT_EQ(Crc32cInstruction(start, piece), Crc32cTable(start, piece)) << begin << " " << size;
    }
  }
}

TEST(Crc32cTest, PiecesChainToTheWhole) {
  for (const Vector& vector : RfcVectors()) {
    for (std::size_t cut = 0; cut <= vector.data.size(); ++cut) {
      const std::span<const std::byte> data(vector.data);
      EXPECT_EQ(Crc32c(Crc32c(0, data.first(cut)), data.subspan(cut)), vector.crc)
          << vector.name << " cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace switchyard
