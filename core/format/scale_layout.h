// The places of scales and codes in the buffers of a low-latency dispatch, as GPU kernels read
// them.
//
// On the wire a row carries its own scales (core/format/wire_format.h). A collective contract
// gathers the scales of all rows of all local experts into one tensor instead, in the order that
// the expert GEMM wants. These are the addresses; nothing here touches memory. Pure and constexpr;
// a few multiplications and divisions each. Indices must be within the extents: nothing is checked.
//
// Extents: `experts` local experts (El), `rows` row slots of each (R * M), `groups` scales of a
// row. Sources: DeepEP low-latency dispatch (FP32 and UE8M0 scales), DeepEP's hybrid-ep branch and
// the scale-factor layout of CUDA's block-scaled matrix products (NVFP4); dispatch-semantics 3.2.
#pragma once

#include <cstdint>

namespace switchyard {

// The sizes of the tensor, as above.
struct ScaleExtents {
  std::int64_t experts = 0;
  std::int64_t rows = 0;
  std::int64_t groups = 0;
};

// The scale of one group of one row.
struct ScaleIndex {
  std::int64_t expert = 0;
  std::int64_t row = 0;
  std::int64_t group = 0;

  friend bool operator==(const ScaleIndex&, const ScaleIndex&) = default;
};

// FP8 with FP32 scales: float [experts, rows, groups], column-major in the last two dimensions:
// stride 1 from row to row, `rows` from group to group. Offsets count floats.
// Count, offset of an index, and index of an offset: the last two are inverse to each other.
constexpr std::int64_t ColumnMajorScaleCount(const ScaleExtents& in) {
  return in.experts * in.rows * in.groups;
}
// Rows are innermost, because a GEMM loads the scales of neighboring rows together.
constexpr std::int64_t ColumnMajorScaleOffset(const ScaleExtents& in, const ScaleIndex& at) {
  return (at.expert * in.groups + at.group) * in.rows + at.row;
}
constexpr ScaleIndex ColumnMajorScaleIndex(const ScaleExtents& in, std::int64_t offset) {
  return {.expert = offset / (in.rows * in.groups),
          .row = offset % in.rows,
          .group = offset / in.rows % in.groups};
}

// FP8 with UE8M0 scales: int32 [experts, rows, ceil(groups / 4)], column-major as above; byte i of
// an int, from the least significant, is group 4j + i. Offsets count bytes of a little-endian
// machine. Where `groups` is no multiple of 4, the bytes left over stay zero.
constexpr std::int64_t kUe8m0PerWord = 4;
// Four scales fill an int, the unit in which the kernels load them.
constexpr std::int64_t PackedUe8m0Words(std::int64_t groups) {
  return (groups + kUe8m0PerWord - 1) / kUe8m0PerWord;
}
constexpr std::int64_t PackedUe8m0Bytes(const ScaleExtents& in) {
  return in.experts * in.rows * PackedUe8m0Words(in.groups) * kUe8m0PerWord;
}
// The offset of a group's byte.
constexpr std::int64_t PackedUe8m0Offset(const ScaleExtents& in, const ScaleIndex& at) {
  const std::int64_t column = at.expert * PackedUe8m0Words(in.groups) + at.group / kUe8m0PerWord;
  return (column * in.rows + at.row) * kUe8m0PerWord + at.group % kUe8m0PerWord;
}
// `group` may be >= groups: the byte is then padding, which stays zero.
constexpr ScaleIndex PackedUe8m0Index(const ScaleExtents& in, std::int64_t offset) {
  const std::int64_t word = offset / kUe8m0PerWord;
  const std::int64_t column = word / in.rows;
  return {.expert = column / PackedUe8m0Words(in.groups),
          .row = word % in.rows,
          .group = column % PackedUe8m0Words(in.groups) * kUe8m0PerWord + offset % kUe8m0PerWord};
}

// NVFP4: E4M3 bytes [experts, ceil(rows / 128), ceil(groups / 4), 32, 4, 4]. A tile is 128 rows by
// 4 groups in 512 bytes: row t is at (t % 32, t / 32), and the 4 groups of a row lie together.
// Offsets count bytes; rows and groups that fill the last tile stay zero.
constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileGroups = 4;
constexpr std::int64_t kTileBytes = kTileRows * kTileGroups;
constexpr std::int64_t kTileStripe = 32;  // rows at distance 32 share a stripe of 16 bytes

// Whole tiles in each dimension, the last one perhaps padded.
constexpr std::int64_t SwizzledRowTiles(const ScaleExtents& in) {
  return (in.rows + kTileRows - 1) / kTileRows;
}
constexpr std::int64_t SwizzledGroupTiles(const ScaleExtents& in) {
  return (in.groups + kTileGroups - 1) / kTileGroups;
}
// Rounded up to whole tiles in both dimensions.
constexpr std::int64_t SwizzledScaleBytes(const ScaleExtents& in) {
  return in.experts * SwizzledRowTiles(in) * SwizzledGroupTiles(in) * kTileBytes;
}
// The order in which the tensor cores read: the scales of rows t, t + 32, t + 64 and t + 96 are
// neighbors.
constexpr std::int64_t SwizzledScaleOffset(const ScaleExtents& in, const ScaleIndex& at) {
  const std::int64_t tile =
      (at.expert * SwizzledRowTiles(in) + at.row / kTileRows) * SwizzledGroupTiles(in) +
      at.group / kTileGroups;
  const std::int64_t row = at.row % kTileRows;
  const std::int64_t stripe = row % kTileStripe * (kTileRows / kTileStripe) + row / kTileStripe;
  return tile * kTileBytes + stripe * kTileGroups + at.group % kTileGroups;
}
// `row` and `group` may be beyond the extents: the byte is then padding, which stays zero.
ScaleIndex SwizzledScaleIndex(const ScaleExtents& in, std::int64_t offset);

// NVFP4 codes: uint8 [experts, rows, hidden / 2]; the even element of a pair is the low nibble. An
// odd `hidden` leaves the last high nibble zero.
struct NibbleAt {
  std::int64_t byte = 0;
  int shift = 0;  // 0 or 4

  friend bool operator==(const NibbleAt&, const NibbleAt&) = default;
};
// The place of a value's code in its row, and back.
constexpr NibbleAt NibbleOf(std::int64_t element) {
  return {.byte = element / 2, .shift = element % 2 == 0 ? 0 : 4};
}
constexpr std::int64_t ElementOf(const NibbleAt& at) {
  return at.byte * 2 + (at.shift != 0 ? 1 : 0);
}

}  // namespace switchyard
