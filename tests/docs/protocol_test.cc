// docs/PROTOCOL.md against the code: every table of the page holds what the code computes.

#include <algorithm>
#include <array>
#include <functional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/dispatch_mode.h"
#include "core/format/wire_format.h"
#include "tests/docs/pages.h"
#include "worker/transport/frame.h"
#include "worker/transport/ring_exchange.h"

namespace switchyard {
namespace {

using docs::LinesOf;
using docs::Table;
using docs::TableBelow;

constexpr char kPage[] = "docs/PROTOCOL.md";
constexpr std::size_t kCrcBytes = 4;

HeaderBytes Encoded(const FrameHeader& header) {
  HeaderBytes bytes{};
  EncodeHeader(header, {}, &bytes);
  return bytes;
}

// A header in which every byte of `field` differs from those of FieldsAtRest.
using Change = std::function<void(FrameHeader*)>;
const std::vector<std::pair<std::string, Change>>& Changes() {
  static const std::vector<std::pair<std::string, Change>> changes{
      {"kind", [](FrameHeader* h) { h->kind = FrameKind::kError; }},
      {"mode", [](FrameHeader* h) { h->mode = DispatchMode::kLowLatency; }},
      {"format", [](FrameHeader* h) { h->format = kNvfp4Format; }},
      {"cookie", [](FrameHeader* h) { h->cookie.value = ~std::uint64_t{0}; }},
      {"epoch", [](FrameHeader* h) { h->epoch.value = ~std::uint64_t{0}; }},
      {"step", [](FrameHeader* h) { h->step.value = ~std::uint64_t{0}; }},
      {"attachment", [](FrameHeader* h) { h->attachment.value = ~std::uint32_t{0}; }},
      {"source_incarnation", [](FrameHeader* h) { h->source_incarnation = ~std::uint32_t{0}; }},
      {"layer", [](FrameHeader* h) { h->layer.value = 0xffff; }},
      {"chunk", [](FrameHeader* h) { h->chunk = 0xffff; }},
      {"chunks", [](FrameHeader* h) { h->chunks = 0xffff; }},
      {"attempt", [](FrameHeader* h) { h->attempt = 0xff; }},
      {"flags", [](FrameHeader* h) { h->flags = 0xff; }},
      {"rows", [](FrameHeader* h) { h->rows = ~std::uint32_t{0}; }},
      {"request_slot", [](FrameHeader* h) { h->request_slot = 0xffff; }},
      {"reply_slot", [](FrameHeader* h) { h->reply_slot = 0xffff; }},
      {"payload_bytes", [](FrameHeader* h) { h->payload_bytes = ~std::uint32_t{0}; }},
  };
  return changes;
}

FrameHeader FieldsAtRest() {
  FrameHeader header;
  header.chunks = 0;
  return header;
}

// "offset|bytes|field" of every field, found by changing one at a time.
std::vector<std::string> FieldsOfTheCode() {
  const HeaderBytes rest = Encoded(FieldsAtRest());
  std::vector<std::string> fields{"0|4|magic", "4|1|version"};
  for (const auto& [name, change] : Changes()) {
    FrameHeader header = FieldsAtRest();
    change(&header);
    const HeaderBytes changed = Encoded(header);
    std::vector<std::size_t> differ;
    for (std::size_t i = 0; i < kFrameHeaderBytes - kCrcBytes; ++i) {
      if (rest[i] != changed[i]) differ.push_back(i);
    }
    EXPECT_FALSE(differ.empty()) << name;
    if (differ.empty()) continue;
    EXPECT_EQ(differ.back() - differ.front() + 1, differ.size()) << name;
    fields.push_back(absl::StrCat(differ.front(), "|", differ.size(), "|", name));
  }
  fields.push_back(absl::StrCat(kFrameHeaderBytes - kCrcBytes, "|", kCrcBytes, "|crc"));
  return fields;
}

TEST(ProtocolPageTest, HeaderIsTheOneOfTheCode) {
  std::vector<std::string> fields;
  std::size_t next = 0;
  for (const auto& cells : TableBelow(kPage, {"offset", "bytes", "field", "meaning"})) {
    ASSERT_EQ(cells.size(), 4U);
    std::size_t bytes = 0;
    ASSERT_TRUE(absl::SimpleAtoi(cells[1], &bytes));
    EXPECT_EQ(cells[0], absl::StrCat(next)) << cells[2] << " leaves a gap";
    next += bytes;
    EXPECT_FALSE(cells[3].empty()) << cells[2];
    fields.push_back(absl::StrJoin({cells[0], cells[1], cells[2]}, "|"));
  }

  EXPECT_EQ(next, kFrameHeaderBytes);
  EXPECT_EQ(fields, FieldsOfTheCode());
  const HeaderBytes bytes = Encoded(FieldsAtRest());
  const std::array<char, 4> magic{'S', 'Y', 'F', '1'};
  EXPECT_TRUE(std::equal(magic.begin(), magic.end(), bytes.begin(), [](char want, std::byte have) {
    return static_cast<std::byte>(want) == have;
  }));
  EXPECT_EQ(bytes[4], static_cast<std::byte>(kFrameVersion));
}

TEST(ProtocolPageTest, KindsAreThoseOfTheCode) {
  std::vector<std::string> kinds;
  for (const auto& cells : TableBelow(kPage, {"kind", "name", "carries"})) {
    kinds.push_back(absl::StrCat(cells[0], " ", cells[1]));
  }

  EXPECT_THAT(
      kinds, ::testing::ElementsAre(absl::StrCat(static_cast<int>(FrameKind::kRequest), " request"),
                                    absl::StrCat(static_cast<int>(FrameKind::kResult), " result"),
                                    absl::StrCat(static_cast<int>(FrameKind::kError), " error")));
}

TEST(ProtocolPageTest, DropsAreThoseOfTheCode) {
  std::vector<std::string> drops;
  for (const auto& cells : TableBelow(kPage, {"number", "dropped as", "when"})) {
    drops.push_back(absl::StrCat(cells[0], " ", cells[1]));
  }
  std::vector<std::string> wanted;
  for (std::size_t i = 1; i < kFrameDropCount; ++i) {
    wanted.push_back(absl::StrCat(i, " ", FrameDropName(static_cast<FrameDrop>(i))));
  }

  EXPECT_EQ(drops, wanted);
}

TEST(ProtocolPageTest, MessagesOfAVisitAreThoseOfTheCode) {
  std::vector<std::string> bytes;
  for (const auto& cells : TableBelow(kPage, {"message", "bytes", "descriptors"})) {
    bytes.push_back(cells[1]);
  }
  const auto answer = [](RingAnswer each) { return static_cast<int>(each); };

  EXPECT_THAT(bytes,
              ::testing::ElementsAre(
                  absl::StrCat("secret (", sizeof(RingSecret), ")"),
                  absl::StrCat(answer(RingAnswer::kRing), ", or ", answer(RingAnswer::kUnknown),
                               " unknown secret, ", answer(RingAnswer::kOtherUser), " other user, ",
                               answer(RingAnswer::kNotSent), " cannot be sent (1)"),
                  absl::StrCat(answer(RingAnswer::kRing), " (1)")));
}

TEST(ProtocolPageTest, FormatsAreThoseOfTheCode) {
  constexpr std::int64_t kHidden = 7168;
  std::vector<std::string> rows;
  for (const auto& cells : TableBelow(kPage, {"format", "code", "bytes of data, 7168 values",
                                              "bytes of scales", "what the scales are"})) {
    rows.push_back(absl::StrJoin({cells[0], cells[1], cells[2], cells[3]}, " "));
  }
  std::vector<std::string> wanted;
  for (const NamedWireFormat& row : WireFormats()) {
    const RowBytes bytes = RowBytesOf(row.format, kHidden);
    wanted.push_back(absl::StrFormat("%s 0x%02x %d %d", row.name, WireFormatCode(row.format),
                                     bytes.data, bytes.scales));
  }

  EXPECT_EQ(rows, wanted);
}

TEST(ProtocolPageTest, ExamplesAreWhatTheCodeComputes) {
  const Table table = TableBelow(kPage, {"mode", "format", "rows", "hidden", "top-k", "slots",
                                         "metadata bytes", "scales at", "rows at", "frame bytes"});
  EXPECT_GE(table.size(), 4U);
  for (const auto& cells : table) {
    ASSERT_EQ(cells.size(), 10U);
    RequestGeometry in;
    ASSERT_TRUE(DispatchModeFromName(cells[0], &in.mode)) << cells[0];
    in.format = WireFormatFromName(cells[1]).value();
    ASSERT_TRUE(absl::SimpleAtoi(cells[2], &in.rows));
    ASSERT_TRUE(absl::SimpleAtoi(cells[3], &in.hidden));
    ASSERT_TRUE(absl::SimpleAtoi(cells[4], &in.top_k));
    ASSERT_TRUE(absl::SimpleAtoi(cells[5], &in.local_slots));
    const FrameLayout out = LayoutOfRequest(in);
    EXPECT_EQ(absl::StrJoin(cells.begin() + 6, cells.end(), " | "),
              absl::StrJoin({out.metadata_bytes, out.scales_begin, out.rows_begin, out.frame_bytes},
                            " | "))
        << absl::StrJoin(cells, " | ");
  }
}

// A constant as people write it: "std::chrono::seconds(2)" is "2 s", "64U << 20" is "64 MiB".
std::string Readable(std::string expression) {
  const std::vector<std::pair<const char*, const char*>> rules{
      {R"(std::size_t\{(\d+)\})", "$1"},
      {R"((\d)(ULL|UL|U)\b)", "$1"},
      {R"(^std::chrono::milliseconds\((\d+)\)$)", "$1 ms"},
      {R"(^std::chrono::seconds\((\d+)\)$)", "$1 s"},
      {R"(^std::chrono::minutes\((\d+)\)$)", "$1 min"},
      {R"(^std::chrono::hours\((\d+)\)$)", "$1 h"},
      {R"(^(\d+) \* 1024$)", "$1 KiB"},
      {R"(^(\d+) << 20$)", "$1 MiB"},
      {R"(^(\d+) << 30$)", "$1 GiB"},
  };
  for (const auto& [pattern, text] : rules) {
    expression = std::regex_replace(expression, std::regex(pattern), text);
  }
  return expression;
}

// The initial value that `file` gives `name`; empty when there is none.
std::string ValueIn(const std::string& file, const std::string& name) {
  const std::regex definition(absl::StrCat("\\b", name, R"( = ([^;]+);)"));
  for (const std::string& line : LinesOf(file)) {
    std::smatch match;
    if (std::regex_search(line, match, definition)) return Readable(match.str(1));
  }
  return "";
}

TEST(ProtocolPageTest, ConstantsAreThoseOfTheCode) {
  const Table table = TableBelow(kPage, {"file", "name", "value", "what it is"});
  EXPECT_GT(table.size(), 25U);
  for (const auto& cells : table) {
    ASSERT_EQ(cells.size(), 4U);
    // A count, not a size: the code shifts for both.
    const std::string value = std::regex_replace(cells[2], std::regex(" Mi$"), " MiB");
    EXPECT_EQ(value, ValueIn(cells[0], cells[1])) << cells[1] << " of " << cells[0];
    EXPECT_FALSE(cells[3].empty()) << cells[1];
  }
}

TEST(ProtocolPageTest, ReadableIsWhatPeopleWrite) {
  EXPECT_EQ(Readable("std::chrono::seconds(2)"), "2 s");
  EXPECT_EQ(Readable("64U << 20"), "64 MiB");
  EXPECT_EQ(Readable("4ULL << 30"), "4 GiB");
  EXPECT_EQ(Readable("1U << 30U"), "1 GiB");
  EXPECT_EQ(Readable("std::size_t{4} << 20"), "4 MiB");
  EXPECT_EQ(Readable("120 * 1024"), "120 KiB");
  EXPECT_EQ(Readable("0x31465953"), "0x31465953");
  EXPECT_EQ(ValueIn("worker/transport/frame.h", "kNoSuchConstant"), "");
}

}  // namespace
}  // namespace switchyard
