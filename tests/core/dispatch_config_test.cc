#include "core/dispatch_config.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(DispatchConfigTest, EdgesOrderBySourceThenWorker) {
  const Edge cpu_to_cpu{DeviceKind::kCpu, DeviceKind::kCpu};
  const Edge cpu_to_cuda{DeviceKind::kCpu, DeviceKind::kCuda};
  const Edge cuda_to_cpu{DeviceKind::kCuda, DeviceKind::kCpu};

  EXPECT_LT(cpu_to_cpu, cpu_to_cuda);
  EXPECT_LT(cpu_to_cuda, cuda_to_cpu);
}

}  // namespace
}  // namespace switchyard
