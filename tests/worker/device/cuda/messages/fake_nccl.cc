#include "tests/worker/device/cuda/messages/fake_nccl.h"

#include <cstring>
#include <memory>
#include <string>
#include <thread>

using switchyard::testing::FakeNccl;

namespace {

std::unique_ptr<FakeNccl> the_state = std::make_unique<FakeNccl>();

// No address is used.
ncclComm_t TheComm() { return reinterpret_cast<ncclComm_t>(FakeNcclState()); }

ncclResult_t AddPart(const char* what, std::size_t bytes, int peer) {
  FakeNcclState()->parts.push_back(std::string(what) + " " + std::to_string(bytes) + " " +
                                   std::to_string(peer));
  return ncclSuccess;
}

}  // namespace

extern "C" {

FakeNccl* FakeNcclState() { return the_state.get(); }
void ResetFakeNccl() { the_state = std::make_unique<FakeNccl>(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = FakeNcclState()->version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 0x5a, sizeof(id->internal));
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote error" : "another error";
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  FakeNccl& state = *FakeNcclState();
  state.id.assign(id.internal, sizeof(id.internal));
  state.ranks = ranks;
  state.rank = rank;
  state.blocking = config->blocking;
  *comm = TheComm();
  return state.joined;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* state) {
  FakeNccl& fake = *FakeNcclState();
  *state = fake.state;
  if (fake.looks_left > 0) {
    --fake.looks_left;
    *state = ncclInProgress;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t /*comm*/) {
  FakeNccl& fake = *FakeNcclState();
  ++fake.aborts;
  while (fake.abort_hangs) std::this_thread::yield();
  ++fake.ended_aborts;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  FakeNccl& fake = *FakeNcclState();
  ++fake.groups;
  if (fake.ended == ncclInProgress) fake.looks_left = fake.looks_until_done;
  return fake.ended;
}
ncclResult_t ncclSend(const void* /*from*/, size_t count, ncclDataType_t /*type*/, int peer,
                      ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return AddPart("send", count, peer);
}
ncclResult_t ncclRecv(void* /*to*/, size_t count, ncclDataType_t /*type*/, int peer,
                      ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return AddPart("receive", count, peer);
}

}  // extern "C"
