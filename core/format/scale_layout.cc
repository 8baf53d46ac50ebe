#include "core/format/scale_layout.h"

namespace switchyard {

ScaleIndex SwizzledScaleIndex(const ScaleExtents& in, std::int64_t offset) {
  const std::int64_t tile = offset / kTileBytes;
  const std::int64_t within = offset % kTileBytes;
  // The inverse of SwizzledScaleOffset: a stripe's 4 rows lie 32 apart.
  const std::int64_t stripe = within / kTileGroups;
  constexpr std::int64_t kRowsOfAStripe = kTileRows / kTileStripe;
  const std::int64_t row = stripe % kRowsOfAStripe * kTileStripe + stripe / kRowsOfAStripe;
  const std::int64_t row_tile = tile / SwizzledGroupTiles(in);
  return {.expert = row_tile / SwizzledRowTiles(in),
          .row = row_tile % SwizzledRowTiles(in) * kTileRows + row,
          .group = tile % SwizzledGroupTiles(in) * kTileGroups + within % kTileGroups};
}

}  // namespace switchyard
