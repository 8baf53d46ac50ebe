// Times of operations that all GPUs of a group take part in, from graphs that begin together.
#pragma once

#include <functional>
#include <vector>

#include "bench/cuda/device_rig.h"
#include "tests/cuda/exchange_group.h"

namespace switchyard::cuda::bench {

// Values of some tokens of each rank, and lists, that are not as predicted; -1: a fault.
int WrongValues(testing::ExchangeGroup& group, const std::vector<testing::RankTokens>& tokens);

class GroupRig {
 public:
  // One rank's part, the i-th time; it enqueues to the rank's stream.
  using Operation = std::function<void(int rank, int i)>;

  // `group` outlives the rig.
  explicit GroupRig(testing::ExchangeGroup* group);
  ~GroupRig();
  GroupRig(const GroupRig&) = delete;
  GroupRig& operator=(const GroupRig&) = delete;

  // Microseconds of one of `count` operations behind each other, of the slowest rank; 40 replays.
  Figure Chain(int count, const Operation& operation);
  // Microseconds of one after a flush of the L2 and a barrier of the GPUs, of the slowest rank: 200
  // replays of operations 0 .. variants - 1 in turn.
  Figure Event(int variants, const Operation& operation);

 private:
  std::vector<cudaGraphExec_t> Capture(const Operation& operation, int count, bool flush);
  double Replay(const std::vector<cudaGraphExec_t>& graphs);

  testing::ExchangeGroup* const group_;
  std::vector<testing::DeviceBuffer<std::byte>> flushed_;
  std::vector<cudaEvent_t> begins_;
  std::vector<cudaEvent_t> ends_;
};

}  // namespace switchyard::cuda::bench
