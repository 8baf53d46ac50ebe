#include "worker/transport/frame.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

std::vector<std::byte> RandomBytes(SeededRng& rng, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Next());
  return bytes;
}

WireFormat RandomFormat(SeededRng& rng) {
  return WireFormats()[rng.Below(WireFormats().size())].format;
}

FrameHeader RandomHeader(SeededRng& rng) {
  FrameHeader header;
  header.kind = static_cast<FrameKind>(1 + rng.Below(3));
  header.mode = static_cast<DispatchMode>(rng.Below(2));
  header.format = RandomFormat(rng);
  header.cookie.value = rng.Next();
  header.epoch.value = rng.Next();
  header.step.value = rng.Next();
  header.attachment.value = static_cast<std::uint32_t>(rng.Next());
  header.source_incarnation = static_cast<std::uint32_t>(rng.Next());
  header.layer.value = static_cast<std::int32_t>(rng.Below(65536));
  header.chunk = static_cast<std::uint16_t>(rng.Next());
  header.chunks = static_cast<std::uint16_t>(rng.Next());
  header.attempt = static_cast<std::uint8_t>(rng.Next());
  header.flags = static_cast<std::uint8_t>(rng.Next());
  header.rows = static_cast<std::uint32_t>(rng.Next());
  header.request_slot = static_cast<std::uint16_t>(rng.Next());
  header.reply_slot = static_cast<std::uint16_t>(rng.Next());
  header.payload_bytes = static_cast<std::uint32_t>(rng.Next());
  return header;
}

// The guards in the order in which a receiver applies them.
FrameDrop Check(const HeaderBytes& bytes, std::span<const std::byte> metadata) {
  FrameHeader header;
  const FrameDrop drop = DecodeHeader(bytes, &header);
  return drop != FrameDrop::kNone ? drop : CheckCrc(bytes, metadata);
}

constexpr std::uint64_t kSeed = 20261120;

TEST(FrameHeaderTest, EncodesTheGoldenBytes) {
  FrameHeader header;
  header.mode = DispatchMode::kLowLatency;
  header.cookie.value = 0x1122334455667788U;
  header.epoch.value = 0x0102030405060708U;
  header.step.value = 0xa1a2a3a4a5a6a7a8U;
  header.attachment.value = 0xc0ffee01U;
  header.source_incarnation = 0xdeadbeefU;
  header.layer.value = 0x0203;
  header.chunk = 4;
  header.chunks = 5;
  header.attempt = 6;
  header.flags = 7;
  header.rows = 0x08090a0bU;
  header.request_slot = 0x0c0d;
  header.reply_slot = 0x0e0f;
  header.payload_bytes = 0x00101112U;
  std::vector<std::byte> metadata;
  for (int i = 1; i < 25; ++i) metadata.push_back(static_cast<std::byte>(i));
  // Computed by hand from the layout at the top of frame.h, CRC by the bitwise definition.
  constexpr std::array<int, kFrameHeaderBytes> kGolden = {
      0x53, 0x59, 0x46, 0x31, 0x01, 0x01, 0x01, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44,
      0x33, 0x22, 0x11, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0xa8, 0xa7,
      0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0x01, 0xee, 0xff, 0xc0, 0xef, 0xbe, 0xad,
      0xde, 0x03, 0x02, 0x04, 0x00, 0x05, 0x00, 0x06, 0x07, 0x0b, 0x0a, 0x09, 0x08,
      0x0d, 0x0c, 0x0f, 0x0e, 0x12, 0x11, 0x10, 0x00, 0x9e, 0x23, 0x4a, 0x54};

  HeaderBytes bytes;
  bytes.fill(std::byte{0xee});
  EncodeHeader(header, metadata, &bytes);

  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(static_cast<int>(bytes[i]), kGolden[i]) << "byte " << i;
  }
}

TEST(FrameHeaderTest, ReadsBackWhatItWrote) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  SeededRng rng(kSeed);

  for (int round = 0; round < 200; ++round) {
    const FrameHeader written = RandomHeader(rng);
    const std::vector<std::byte> metadata = RandomBytes(rng, rng.Below(200));
    HeaderBytes bytes;
    EncodeHeader(written, metadata, &bytes);

    FrameHeader read = RandomHeader(rng);
    ASSERT_EQ(DecodeHeader(bytes, &read), FrameDrop::kNone);
    EXPECT_EQ(read, written) << round;
    EXPECT_EQ(CheckCrc(bytes, metadata), FrameDrop::kNone) << round;
  }
}

TEST(FrameHeaderTest, NoticesEverySingleBitFlipInHeaderAndMetadata) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  SeededRng rng(kSeed);
  constexpr std::size_t kMetadataBytes = 90;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> metadata = RandomBytes(rng, kMetadataBytes);
    HeaderBytes bytes;
    EncodeHeader(RandomHeader(rng), metadata, &bytes);
    ASSERT_EQ(Check(bytes, metadata), FrameDrop::kNone);

    for (std::size_t bit = 0; bit < 8 * (kFrameHeaderBytes + kMetadataBytes); ++bit) {
      const std::size_t at = bit / 8;
      std::byte& victim = at < kFrameHeaderBytes ? bytes[at] : metadata[at - kFrameHeaderBytes];
      const std::byte flip = std::byte{1} << (bit % 8);
      victim ^= flip;
      EXPECT_NE(Check(bytes, metadata), FrameDrop::kNone) << "round " << round << " bit " << bit;
      victim ^= flip;
    }
  }
}

TEST(FrameHeaderTest, NoticesSwappedAndShortenedMetadata) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  SeededRng rng(kSeed);
  std::vector<std::byte> metadata = RandomBytes(rng, 96);
  HeaderBytes bytes;
  EncodeHeader(RandomHeader(rng), metadata, &bytes);

  EXPECT_EQ(CheckCrc(bytes, std::span(metadata).first(92)), FrameDrop::kCrc);
  std::rotate(metadata.begin(), metadata.begin() + 12, metadata.end());
  EXPECT_EQ(CheckCrc(bytes, metadata), FrameDrop::kCrc);
}

// A defect of a header, and the drop that it causes.
struct Damage {
  const char* what;
  std::size_t at;
  std::uint8_t value;
  FrameDrop expected;
};

TEST(FrameHeaderTest, TellsEachReasonToDropByItsField) {
  const std::vector<Damage> table = {
      {"magic, first byte", 0, 0x54, FrameDrop::kMagic},
      {"magic, last byte", 3, 0x32, FrameDrop::kMagic},
      {"a version to come", 4, kFrameVersion + 1, FrameDrop::kVersion},
      {"version zero", 4, 0, FrameDrop::kVersion},
      {"kind zero", 5, 0, FrameDrop::kField},
      {"kind beyond error", 5, 4, FrameDrop::kField},
      {"mode beyond low_latency", 6, 2, FrameDrop::kField},
      {"dtype beyond nvfp4", 7, 4, FrameDrop::kField},
      {"a cookie that the CRC does not cover", 8, 0xff, FrameDrop::kCrc},
      {"the CRC itself", 60, 0xff, FrameDrop::kCrc},
  };
  FrameHeader header;
  header.cookie.value = 0x0101010101010101U;
  const std::vector<std::byte> metadata(8, std::byte{0x5a});
  for (const Damage& damage : table) {
    HeaderBytes bytes;
    EncodeHeader(header, metadata, &bytes);
    bytes[damage.at] = static_cast<std::byte>(damage.value);

    EXPECT_EQ(Check(bytes, metadata), damage.expected) << damage.what;
  }
}

TEST(FrameHeaderTest, DropsFewerBytesThanAHeader) {
  HeaderBytes bytes;
  EncodeHeader(FrameHeader{}, {}, &bytes);

  FrameHeader header;
  EXPECT_EQ(DecodeHeader(std::span(bytes).first(63), &header), FrameDrop::kTruncated);
  EXPECT_EQ(DecodeHeader({}, &header), FrameDrop::kTruncated);
}

TEST(FrameDropTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kFrameDropCount; ++i) {
    names.insert(std::string(FrameDropName(static_cast<FrameDrop>(i))));
  }

  EXPECT_EQ(names.size(), kFrameDropCount);
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(FrameLayoutTest, PlacesTheRequestsOfBothModes) {
  // normal: 5 rows x (4 + 3 x 8) = 140 bytes of metadata; BF16 has no scales.
  const FrameLayout normal =
      LayoutOfRequest({.mode = DispatchMode::kNormal, .rows = 5, .hidden = 100, .top_k = 3});
  EXPECT_EQ(normal.metadata_bytes, 140U);
  EXPECT_EQ(normal.metadata_begin, 64U);
  EXPECT_EQ(normal.scales_begin, 256U);
  EXPECT_EQ(normal.rows_begin, 256U);
  EXPECT_EQ(normal.frame_bytes, 256U + 1024U);
  EXPECT_EQ(normal.payload_bytes(), 256U + 1024U - 64U);

  // low_latency: 16 x 4 + 5 x 8 = 104 bytes; FP8: one FP32 scale for each 128 of 256 values.
  const FrameLayout low = LayoutOfRequest({.mode = DispatchMode::kLowLatency,
                                           .format = kFp8Format,
                                           .rows = 5,
                                           .hidden = 256,
                                           .top_k = 8,
                                           .local_slots = 16});
  EXPECT_EQ(low.metadata_bytes, 104U);
  EXPECT_EQ(low.scales_begin, 192U);
  EXPECT_EQ(low.rows_begin, 256U);
  EXPECT_EQ(low.frame_bytes, 256U + 1280U);
}

TEST(FrameLayoutTest, PartsAreAlignedDisjointAndInOrder) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  SeededRng rng(kSeed);
  for (int round = 0; round < 500; ++round) {
    RequestGeometry geometry;
    geometry.mode = static_cast<DispatchMode>(rng.Below(2));
    geometry.format = RandomFormat(rng);
    geometry.rows = static_cast<std::uint32_t>(rng.Below(300));
    geometry.hidden = static_cast<std::int32_t>(128 * (1 + rng.Below(56)));
    geometry.top_k = static_cast<std::int32_t>(1 + rng.Below(10));
    geometry.local_slots = static_cast<std::int32_t>(rng.Below(64));

    const FrameLayout layout = LayoutOfRequest(geometry);

    const RowBytes row = RowBytesOf(geometry.format, geometry.hidden);
    EXPECT_EQ(layout.scales_begin % kFrameAlign, 0U);
    EXPECT_EQ(layout.rows_begin % kFrameAlign, 0U);
    EXPECT_EQ(layout.frame_bytes % kFrameAlign, 0U);
    EXPECT_GE(layout.scales_begin, layout.metadata_begin + layout.metadata_bytes);
    EXPECT_GE(layout.rows_begin,
              layout.scales_begin + geometry.rows * static_cast<std::size_t>(row.scales));
    EXPECT_GE(layout.frame_bytes,
              layout.rows_begin + geometry.rows * static_cast<std::size_t>(row.data));
    // No part is padded by a whole unit.
    EXPECT_LT(layout.frame_bytes, layout.metadata_begin + layout.metadata_bytes +
                                      geometry.rows * static_cast<std::size_t>(row.total()) +
                                      3 * kFrameAlign);
  }
}

TEST(FrameLayoutTest, ResultIsRowsAloneAndErrorIsItsText) {
  const FrameLayout empty = LayoutOfResult(0, 7168);
  EXPECT_EQ(empty.frame_bytes, 64U);
  const FrameLayout result = LayoutOfResult(3, 33);
  EXPECT_EQ(result.metadata_bytes, 0U);
  EXPECT_EQ(result.rows_begin, 64U);
  EXPECT_EQ(result.frame_bytes, 64U + 256U);
  EXPECT_EQ(LayoutOfError(0).frame_bytes, 128U);
  EXPECT_EQ(LayoutOfError(49).frame_bytes, 192U);
  EXPECT_EQ(LayoutOfError(100000).metadata_bytes, 16U + kErrorTextMax);
}

TEST(ErrorBodyTest, ReadsBackWhatItWrote) {
  ErrorBody body;
  body.code = absl::StatusCode::kFailedPrecondition;
  body.reason = 20;
  body.row = 77;
  body.text = "epoch 4 is not bound here; bind again";
  std::vector<std::byte> bytes(LayoutOfError(body.text.size()).metadata_bytes, std::byte{0xee});

  const std::size_t written = EncodeErrorBody(body, bytes);

  EXPECT_EQ(written, bytes.size());
  ErrorBody read;
  ASSERT_EQ(DecodeErrorBody(bytes, &read), FrameDrop::kNone);
  EXPECT_EQ(read.code, body.code);
  EXPECT_EQ(read.reason, body.reason);
  EXPECT_EQ(read.row, body.row);
  EXPECT_EQ(read.text, body.text);
}

TEST(ErrorBodyTest, CutsLongTextsAndToleratesPadding) {
  ErrorBody body;
  body.text = std::string(1000, 'x');
  std::vector<std::byte> bytes(LayoutOfError(body.text.size()).payload_bytes(), std::byte{0xee});

  const std::size_t written = EncodeErrorBody(body, bytes);

  EXPECT_EQ(written, 16U + kErrorTextMax);
  ErrorBody read;
  ASSERT_EQ(DecodeErrorBody(bytes, &read), FrameDrop::kNone);
  EXPECT_EQ(read.text, std::string(kErrorTextMax, 'x'));
}

TEST(ErrorBodyTest, RefusesWhatIsNotAnErrorBody) {
  ErrorBody body;
  body.text = "0123456789";
  std::vector<std::byte> good(LayoutOfError(body.text.size()).metadata_bytes);
  EncodeErrorBody(body, good);
  ErrorBody read;

  EXPECT_EQ(DecodeErrorBody(std::span(good).first(15), &read), FrameDrop::kTruncated);
  EXPECT_EQ(DecodeErrorBody(std::span(good).first(25), &read), FrameDrop::kTruncated);
  std::vector<std::byte> bad = good;
  bad[0] = std::byte{0};
  EXPECT_EQ(DecodeErrorBody(bad, &read), FrameDrop::kField) << "an error whose code is OK";
  bad[0] = std::byte{17};
  EXPECT_EQ(DecodeErrorBody(bad, &read), FrameDrop::kField) << "a code beyond gRPC's";
  bad = good;
  bad[13] = std::byte{2};
  EXPECT_EQ(DecodeErrorBody(bad, &read), FrameDrop::kLength) << "522 bytes of text";
}

TEST(ErrorBodyDeathTest, ABufferThatIsTooSmallEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  ErrorBody body;
  body.text = "0123456789";
  std::vector<std::byte> bytes(LayoutOfError(body.text.size()).metadata_bytes - 1);

  EXPECT_DEATH(EncodeErrorBody(body, bytes), "no room for the body");
}

}  // namespace
}  // namespace switchyard
