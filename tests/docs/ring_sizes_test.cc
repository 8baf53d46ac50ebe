// The table of docs/SEVERAL_HOSTS.md with the memory of sessions, against the functions that size
// their rings.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

#include "core/dispatch_mode.h"
#include "core/format/wire_format.h"
#include "tests/docs/pages.h"
#include "worker/source/p2p/p2p_runner.h"
#include "worker/source/p2p/slot_bytes.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

// The columns that say what session it is.
struct Session {
  DispatchMode mode = DispatchMode::kNormal;
  WireFormat format;
  MoeShape shape;
  std::size_t workers = 1;
  std::int32_t tokens = 0;
};

std::int32_t Number(const std::string& cell) {
  std::int32_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(cell, &number)) << cell;
  return number;
}

Session SessionOf(const std::vector<std::string>& cells) {
  Session session;
  EXPECT_TRUE(DispatchModeFromName(cells[0], &session.mode)) << cells[0];
  const auto dtype = DispatchDtypeFromName(cells[1]);
  EXPECT_TRUE(dtype.has_value()) << cells[1];
  session.format = DefaultWireFormat(dtype.value_or(DispatchDtype::kBf16));
  session.shape.hidden = Number(cells[2]);
  session.shape.experts = Number(cells[3]);
  session.shape.top_k = Number(cells[4]);
  session.workers = static_cast<std::size_t>(Number(cells[5]));
  session.tokens = Number(cells[6]);
  return session;
}

std::string Mib(std::size_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// "rows|request ring|reply ring" of an attachment of the session, as the code makes them.
std::string SizesOf(const Session& session) {
  const P2pRunnerOptions options;
  SessionGrant grant;
  grant.plan.shape = session.shape;
  grant.plan.workers.resize(session.workers);
  grant.request.mode = session.mode;
  grant.request.max_tokens = session.tokens;
  const std::uint32_t rows = ChunkRowsOf(grant, {.rows_max = options.chunk_rows_max,
                                                 .credits = options.credits,
                                                 .ring_bytes_max = options.ring_bytes_max});
  const std::size_t request = LayoutOfRequest({.mode = session.mode,
                                               .format = session.format,
                                               .rows = rows,
                                               .hidden = session.shape.hidden,
                                               .top_k = session.shape.top_k,
                                               .local_slots = session.shape.experts})
                                  .frame_bytes;
  const std::size_t reply = LayoutOfResult(rows, session.shape.hidden).frame_bytes;
  return absl::StrCat(rows, "|", Mib(options.credits * request), "|", Mib(options.credits * reply));
}

TEST(RingSizesTest, PageHasTheSizesOfTheCode) {
  const docs::Table rows = docs::TableBelow(
      "docs/SEVERAL_HOSTS.md", {"mode", "wire dtype", "hidden", "experts", "top-k", "workers",
                                "largest batch", "rows of a chunk", "request ring", "reply ring"});
  EXPECT_GE(rows.size(), 5U);
  for (const auto& cells : rows) {
    ASSERT_EQ(cells.size(), 10U);
    EXPECT_EQ(absl::StrJoin({cells[7], cells[8], cells[9]}, "|"), SizesOf(SessionOf(cells)))
        << absl::StrJoin(cells, "|");
  }
}

}  // namespace
}  // namespace switchyard
