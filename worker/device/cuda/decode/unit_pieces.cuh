// Which blocks of k of which units (group_table.cuh) a CTA of a grouped product multiplies.
//
// Where CTAs only take whole units in turn, the last round leaves most SMs idle unless it is full,
// and the few that work cannot use the memory's speed. A kernel that cuts therefore divides the
// last full round and the units behind it along k into equal shares, one for each CTA. A share may
// begin or end inside a unit: the CTA that has the unit's first blocks leaves its sums to the next
// CTA, which goes on from them. So the products of a unit are added in the order of k however it is
// cut, and have the same bits.
//
// A share is not shorter than a unit, so a unit has at most two CTAs. A CTA first makes what
// others wait for and waits last, and only for the CTA before it.
#pragma once

#include "worker/device/cuda/decode/group_table.cuh"

namespace switchyard::cuda {

// The blocks [first, end) of a unit.
struct Piece {
  Unit unit;
  int first;
  int end;
};

__device__ __forceinline__ bool operator==(const Piece& a, const Piece& b) {
  return a.unit.group == b.unit.group && a.unit.weight_tile == b.unit.weight_tile &&
         a.unit.row_tile == b.unit.row_tile && a.first == b.first && a.end == b.end;
}

// CtaShare is what a CTA does, in the order of the fields. Units are numbers as UnitWalk counts
// them.
template <bool kCuts>
struct CtaShare {
  int rounds_end;     // whole units below it: that of the CTA's number, and each gridDim.x behind
  int head_unit = 0;  // its blocks below head_end; none if that is 0
  int head_end = 0;
  int whole_unit = 0;  // the first of `wholes` whole units
  int wholes = 0;
  int tail_unit = 0;  // its blocks from tail_first on; none if that is 0
  int tail_first = 0;

  __device__ __forceinline__ CtaShare(int units, int k_blocks) : rounds_end(units) {
    if constexpr (kCuts) Cut(units, k_blocks);
  }

 private:
  __device__ __forceinline__ void Cut(int units, int k_blocks) {
    const int cta = static_cast<int>(blockIdx.x);
    const int ctas = static_cast<int>(gridDim.x);
    const int full = units / ctas;
    const int behind = units - full * ctas;
    if (full == 0 || behind == 0) return;
    rounds_end = (full - 1) * ctas;
    const int blocks = (ctas + behind) * k_blocks;
    const int of_each = blocks / ctas;
    const int more = blocks - of_each * ctas;  // so many shares have one block more
    const int from = of_each * cta + min(cta, more);
    const int to = from + of_each + (cta < more ? 1 : 0);
    const int from_unit = from / k_blocks;
    const int to_unit = to / k_blocks;
    head_unit = rounds_end + to_unit;
    head_end = to - to_unit * k_blocks;
    tail_unit = rounds_end + from_unit;
    tail_first = from - from_unit * k_blocks;
    const int whole = from_unit + (tail_first > 0 ? 1 : 0);
    whole_unit = rounds_end + whole;
    wholes = to_unit - whole;
  }
};

// The pieces of this CTA, one after the other. A whole warp calls it.
template <bool kCuts>
class PieceWalk {
 public:
  __device__ __forceinline__ PieceWalk(const GroupTable& table, int weight_tiles, int k_blocks)
      : units_(table, weight_tiles), k_blocks_(k_blocks), share_(units_.count(), k_blocks) {}

  // False after the last one, and `piece` stays.
  __device__ __forceinline__ bool Next(Piece& piece) {
    if (next_ < share_.rounds_end) {
      piece = {units_.Seek(next_), 0, k_blocks_};
      next_ += static_cast<int>(gridDim.x);
      return true;
    }
    if constexpr (!kCuts) return false;
    if (share_.head_end > 0) {
      piece = {Find(share_.head_unit), 0, share_.head_end};
      share_.head_end = 0;
      return true;
    }
    if (share_.wholes > 0) {
      piece = {Find(share_.whole_unit), 0, k_blocks_};
      share_.whole_unit++;
      share_.wholes--;
      return true;
    }
    if (share_.tail_first > 0) {
      piece = {Find(share_.tail_unit), share_.tail_first, k_blocks_};
      share_.tail_first = 0;
      return true;
    }
    return false;
  }

 private:
  // A unit of the share, which is behind those of all rounds: they do not come in ascending order.
  __device__ __forceinline__ Unit Find(int unit) const {
    UnitWalk from = units_;
    return from.Seek(unit);
  }

  UnitWalk units_;
  const int k_blocks_;
  CtaShare<kCuts> share_;
  int next_ = static_cast<int>(blockIdx.x);
};

}  // namespace switchyard::cuda
