// Which tile of a grouped product each cluster of blocks computes next.
//
// A tile is 128 rows x 256 columns of one expert; with clusters of two blocks a unit of work is two
// of them. Rows of an expert go by in pairs of 128-row blocks, so that both blocks of a cluster read
// the same weights, which then cross the L2 once (`Tile::paired`). An expert's odd last row block
// goes by in pairs of column blocks, which share nothing.
//
// Order within an expert: bands of kBand row blocks, the row fastest, then the column. The clusters
// at work at one time then span about as many rows as columns, and read both from the L2.
#pragma once

#include <cstdint>

namespace switchyard::cuda {

inline constexpr int kTileRows = 128;
inline constexpr int kTileColumns = 256;

struct Tile {
  int expert = 0;
  int first_row = 0;
  int column_block = 0;
  bool paired = false;  // the blocks of the cluster read the same weights
  bool stored = true;   // false: the tile only keeps its block in step with the other one
};

template <int Cluster>
class TileWalk {
 public:
  // `row_ends`: prefill_gemm.h. Units `first`, `first + step`, ... are walked.
  __device__ TileWalk(const std::int32_t* row_ends, int experts, int rows_max, int column_blocks,
                      int band, int first, int step, int rank)
      : row_ends_(row_ends),
        experts_(experts),
        rows_max_(rows_max),
        column_blocks_(column_blocks),
        band_(band),
        unit_(first),
        step_(step),
        rank_(rank) {}

  __device__ bool Next(Tile* tile) {
    while (unit_ - first_unit_ >= units_) {
      if (++expert_ == experts_) return false;
      first_unit_ += units_;
      first_row_ += row_blocks_ * kTileRows;
      const int rows = min(row_ends_[expert_], rows_max_) - first_row_;
      row_blocks_ = max(0, (rows + kTileRows - 1) / kTileRows);
      paired_units_ = row_blocks_ / Cluster * column_blocks_;
      units_ = paired_units_ +
               row_blocks_ % Cluster * ((column_blocks_ + Cluster - 1) / Cluster);
    }
    tile->expert = expert_;
    const int unit = unit_ - first_unit_;
    if (unit < paired_units_) {
      Paired(unit, tile);
    } else {
      Odd(unit - paired_units_, tile);
    }
    unit_ += step_;
    return true;
  }

 private:
  __device__ void Paired(int unit, Tile* tile) const {
    const int high = row_blocks_ / Cluster;
    const int band = unit / (band_ * column_blocks_);
    const int within = unit - band * band_ * column_blocks_;
    const int width = min(band_, high - band * band_);
    const int pair = band * band_ + within % width;
    tile->first_row = first_row_ + (pair * Cluster + rank_) * kTileRows;
    tile->column_block = within / width;
    tile->paired = Cluster > 1;
    tile->stored = true;
  }

  __device__ void Odd(int unit, Tile* tile) const {
    const int column_block = unit * Cluster + rank_;
    tile->first_row = first_row_ + (row_blocks_ - 1) * kTileRows;
    tile->column_block = min(column_block, column_blocks_ - 1);
    tile->paired = false;
    tile->stored = column_block < column_blocks_;
  }

  const std::int32_t* row_ends_;
  int experts_;
  int rows_max_;
  int column_blocks_;
  int band_;
  int unit_;
  int step_;
  int rank_;
  int expert_ = -1;
  int first_row_ = 0;  // of the expert
  int row_blocks_ = 0;
  int first_unit_ = 0;
  int paired_units_ = 0;
  int units_ = 0;
};

}  // namespace switchyard::cuda
