// A stand-in for NCCL's library (fake_nccl.cc), which a test loads in its place and looks into. One
// process; no device.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include <nccl.h>

namespace switchyard::testing {

struct FakeNccl {
  // What the calls do from now on.
  int version = NCCL_VERSION_CODE;
  ncclResult_t joined = ncclInProgress;          // what ncclCommInitRankConfig returns
  std::atomic<ncclResult_t> state{ncclSuccess};  // of ncclCommGetAsyncError
  ncclResult_t ended = ncclInProgress;           // what ncclGroupEnd returns
  int looks_until_done = 3;                      // of a group that is in progress
  int looks_left = 0;
  // What they were asked.
  std::string id;
  int ranks = 0;
  int rank = -1;
  int blocking = -1;
  int groups = 0;  // that have been begun and ended
  std::atomic<int> aborts{0};
  std::atomic<bool> abort_hangs{false};
  std::atomic<int> ended_aborts{0};
  std::vector<std::string> parts;  // "send 16 to 1"
};

}  // namespace switchyard::testing

// Of the library: what its calls work on, and as it is at first.
extern "C" switchyard::testing::FakeNccl* FakeNcclState();
extern "C" void ResetFakeNccl();
