// The stand-in for NCCL, loaded and as it is at first, for tests.
#pragma once

#include <cstdlib>

#include <dlfcn.h>

#include "tests/worker/device/cuda/messages/fake_nccl.h"

namespace switchyard::testing {

// Its path is FAKE_NCCL, for NcclOptions::library.
class FakeNcclLibrary {
 public:
  FakeNcclLibrary() : library_(::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) std::abort();  // the library is beside the test
    reinterpret_cast<void (*)()>(::dlsym(library_, "ResetFakeNccl"))();
    state_ = reinterpret_cast<FakeNccl* (*)()>(::dlsym(library_, "FakeNcclState"))();
  }
  ~FakeNcclLibrary() { ::dlclose(library_); }
  FakeNcclLibrary(const FakeNcclLibrary&) = delete;
  FakeNcclLibrary& operator=(const FakeNcclLibrary&) = delete;

  FakeNccl* operator->() const { return state_; }

 private:
  void* const library_;
  FakeNccl* state_ = nullptr;
};

}  // namespace switchyard::testing
