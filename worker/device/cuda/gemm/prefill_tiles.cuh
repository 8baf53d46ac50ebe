// Which tile of a grouped product each cluster of blocks computes next.
//
// A tile is 128 rows x some columns of one expert; with clusters of two blocks a unit of work is
// two of them. Rows of an expert go by in pairs of 128-row blocks, so that both blocks of a cluster
// read the same weights, which then cross the L2 once (`Tile::paired`). An expert's odd last row
// block goes by in pairs of column blocks, which share nothing.
//
// Order within an expert: bands of kBand row blocks, the row fastest, then the column. The clusters
// at work at one time then span about as many rows as columns, and read both from the L2.
#pragma once

#include <cstdint>

namespace switchyard::cuda {

inline constexpr int kTileRows = 128;

struct Tile {
  int expert = 0;
  int first_row = 0;
  int column_block = 0;
  bool paired = false;   // the blocks of the cluster read the same weights
  bool stored = true;    // false: the tile only keeps its block in step with the other one
  int rows = kTileRows;  // the expert's; the others belong to the next one, or to none
};

// The rows of each expert, as prefill_gemm.h says. A layout has FirstRow, the expert's first row,
// and Rows, the number of its rows.
class AlignedRows {
 public:
  __device__ AlignedRows(const std::int32_t* row_ends, int rows_max)
      : row_ends_(row_ends), rows_max_(rows_max) {}

  __device__ int FirstRow(int expert) const {
    if (expert == 0) return 0;
    return (row_ends_[expert - 1] + kTileRows - 1) / kTileRows * kTileRows;
  }
  __device__ int Rows(int expert) const {
    return min(row_ends_[expert], rows_max_) - FirstRow(expert);
  }

 private:
  const std::int32_t* row_ends_;
  int rows_max_;
};

class PackedRows {
 public:
  __device__ PackedRows(const std::int32_t* counts, const std::int32_t* offsets)
      : counts_(counts), offsets_(offsets) {}

  __device__ int FirstRow(int expert) const { return offsets_[expert]; }
  __device__ int Rows(int expert) const { return counts_[expert]; }

 private:
  const std::int32_t* counts_;
  const std::int32_t* offsets_;
};

template <int Cluster, typename Layout>
class TileWalk {
 public:
  __device__ TileWalk(const Layout& layout, int experts, int column_blocks, int band, int rank)
      : layout_(layout),
        experts_(experts),
        column_blocks_(column_blocks),
        band_(band),
        rank_(rank) {}

  // Units of all experts. A whole warp calls it.
  __device__ int Total() const {
    int total = 0;
    for (int expert = threadIdx.x % 32; expert < experts_; expert += 32) {
      total += Units(RowBlocks(layout_.Rows(expert)));
    }
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0U, total, step);
    return total;
  }

  // The tile of unit `unit`, which is below Total() and above the unit before.
  __device__ Tile At(int unit) {
    while (unit - first_unit_ >= units_) {
      first_unit_ += units_;
      rows_ = layout_.Rows(++expert_);
      row_blocks_ = RowBlocks(rows_);
      units_ = Units(row_blocks_);
    }
    const int within = unit - first_unit_;
    const int paired_units = row_blocks_ / Cluster * column_blocks_;
    return within < paired_units ? Paired(within) : Odd(within - paired_units);
  }

 private:
  static __device__ int RowBlocks(int rows) { return max(0, (rows + kTileRows - 1) / kTileRows); }

  __device__ int Units(int row_blocks) const {
    return row_blocks / Cluster * column_blocks_ +
           row_blocks % Cluster * ((column_blocks_ + Cluster - 1) / Cluster);
  }

  __device__ Tile Paired(int unit) const {
    const int high = row_blocks_ / Cluster;
    const int band = unit / (band_ * column_blocks_);
    const int within = unit - band * band_ * column_blocks_;
    const int width = min(band_, high - band * band_);
    const int pair = band * band_ + within % width;
    const int row = (pair * Cluster + rank_) * kTileRows;
    return {.expert = expert_,
            .first_row = layout_.FirstRow(expert_) + row,
            .column_block = within / width,
            .paired = Cluster > 1,
            .stored = true,
            .rows = rows_ - row};
  }

  __device__ Tile Odd(int unit) const {
    const int column_block = unit * Cluster + rank_;
    const int row = (row_blocks_ - 1) * kTileRows;
    return {.expert = expert_,
            .first_row = layout_.FirstRow(expert_) + row,
            .column_block = min(column_block, column_blocks_ - 1),
            .paired = false,
            .stored = column_block < column_blocks_,
            .rows = rows_ - row};
  }

  Layout layout_;
  int experts_;
  int column_blocks_;
  int band_;
  int rank_;
  int expert_ = -1;
  int rows_ = 0;  // of the expert
  int row_blocks_ = 0;
  int first_unit_ = 0;
  int units_ = 0;
};

}  // namespace switchyard::cuda
