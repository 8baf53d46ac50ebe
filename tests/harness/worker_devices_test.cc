#include "harness/worker_devices.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(WorkerDevicesTest, WorkersGetTheDevicesInTurn) {
  EXPECT_EQ(DeviceOfWorker("cpu", 0), "cpu");
  EXPECT_EQ(DeviceOfWorker("cpu:compute_threads=2,kernel_family=scalar", 3),
            "cpu:compute_threads=2,kernel_family=scalar");
  const char* const kTwo = "cuda:0;cpu:compute_threads=2";
  EXPECT_EQ(DeviceOfWorker(kTwo, 0), "cuda:0");
  EXPECT_EQ(DeviceOfWorker(kTwo, 1), "cpu:compute_threads=2");
  EXPECT_EQ(DeviceOfWorker(kTwo, 2), "cuda:0");
}

TEST(WorkerDevicesTest, WhatIsEmptyStaysEmpty) {
  EXPECT_EQ(DeviceOfWorker("", 1), "");
  EXPECT_EQ(DeviceOfWorker("cpu;", 1), "");
}

}  // namespace
}  // namespace switchyard
