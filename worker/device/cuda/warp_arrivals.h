// How many lanes of a warp arrive at a barrier for it.
//
// One does, after a warp barrier, which orders what the other lanes did before. compute-sanitizer's
// racecheck does not follow that; SWITCHYARD_EVERY_LANE_ARRIVES gives it kernels in which each lane
// arrives for itself.
#pragma once

namespace switchyard::cuda {

#if defined(SWITCHYARD_EVERY_LANE_ARRIVES)
inline constexpr int kArrivalsOfWarp = 32;
#else
inline constexpr int kArrivalsOfWarp = 1;
#endif

}  // namespace switchyard::cuda
