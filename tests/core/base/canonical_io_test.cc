#include "core/base/canonical_io.h"

#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

enum class Color : std::uint8_t { kRed = 3, kBlue = 200 };

struct Thing {
  std::int32_t number = 0;
  Color color = Color::kRed;
  std::array<std::uint8_t, 32> digest{};
  std::vector<std::string> names;
  friend bool operator==(const Thing&, const Thing&) = default;
};

template <typename Io, typename T>
void Walk(Io& io, T& thing) {
  io.Int(thing.number);
  io.Int(thing.color);
  io.Raw(thing.digest);
  io.ForEach(thing.names, [&io](auto& name) { io.String(name); });
}

std::string BytesOf(const Thing& thing) {
  CanonicalWriter writer;
  Walk(writer, thing);
  return writer.Take();
}

Thing SomeThing() {
  Thing thing{.number = -7, .color = Color::kBlue, .digest = {}, .names = {"a", "", "ccc"}};
  for (std::size_t i = 0; i < thing.digest.size(); ++i) {
    thing.digest[i] = static_cast<std::uint8_t>(i * 9);
  }
  return thing;
}

TEST(CanonicalIoTest, RoundTrips) {
  const std::string bytes = BytesOf(SomeThing());

  CanonicalReader reader(bytes);
  Thing read;
  Walk(reader, read);

  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(read, SomeThing());
}

TEST(CanonicalIoTest, WritesLittleEndianFixedWidth) {
  CanonicalWriter writer;

  writer.Int(std::uint32_t{0x01020304});
  writer.String("xy");

  EXPECT_EQ(writer.Take(), std::string("\x04\x03\x02\x01\x02\x00\x00\x00xy", 10));
}

TEST(CanonicalIoTest, SeesEveryTruncationAndTrailingBytes) {
  const std::string bytes = BytesOf(SomeThing());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CanonicalReader reader(absl::string_view(bytes).substr(0, size));
    Thing read;
    Walk(reader, read);
    EXPECT_FALSE(reader.ok()) << size;
  }
  const std::string longer = bytes + '\0';
  CanonicalReader reader(longer);
  Thing read;
  Walk(reader, read);
  EXPECT_FALSE(reader.ok());
}

TEST(CanonicalIoTest, BoundsListsByTheBytesThatAreThere) {
  const std::string huge_count = std::string("\xff\xff\xff\x7f", 4) + "abc";
  std::vector<std::string> names;
  CanonicalReader reader(huge_count);

  reader.ForEach(names, [&reader](std::string& name) { reader.String(name); });

  EXPECT_FALSE(reader.ok());
  EXPECT_TRUE(names.empty());
}

}  // namespace
}  // namespace switchyard
