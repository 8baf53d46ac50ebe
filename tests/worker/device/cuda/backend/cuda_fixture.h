// The fixture of tests that need a GPU. They are skipped, with the reason, where there is none.
#pragma once

#include <memory>

#include "gtest/gtest.h"

#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard::testing {

template <typename Base = ::testing::Test>
class CudaFixture : public Base {
 protected:
  void SetUp() override {
    auto made = CudaBackend::Create({});
    if (absl::IsFailedPrecondition(made.status())) GTEST_SKIP() << made.status();
    ASSERT_TRUE(made.ok()) << made.status();
    device_ = *std::move(made);
  }

  std::unique_ptr<CudaBackend> device_;
};

}  // namespace switchyard::testing
