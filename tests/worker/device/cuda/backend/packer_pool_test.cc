// Loading of experts by several threads. Skipped, with the reason, where there is no GPU.
#include "worker/device/cuda/backend/packer_pool.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include <cuda_runtime_api.h>

#include "core/rng.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/backend/cuda_fixture.h"
#include "worker/device/cuda/backend/cuda_backend.h"
#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/backend/upload_buffer.h"

namespace switchyard {
namespace {

using testing::OkOrAbort;
using testing::RandomExpert;

std::vector<std::byte> BytesAt(const std::byte* device, std::size_t bytes) {
  std::vector<std::byte> host(bytes, std::byte{0x5a});
  EXPECT_EQ(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  return host;
}

class PackerPoolTest : public testing::CudaFixture<> {
 protected:
  CudaFault fault_{0, nullptr};
};

TEST_F(PackerPoolTest, AnUploadIsByteForByteWhateverItsSize) {
  constexpr std::size_t kLargest = (std::size_t{17} << 20) + 3;
  SeededRng rng(5);
  std::vector<std::byte> from(kLargest);
  for (std::byte& byte : from) byte = static_cast<std::byte>(rng.Below(256));
  const CudaMemory to = OkOrAbort(CudaMemory::OnDevice(kLargest, fault_, "a test"));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  UploadBuffer upload(&fault_);
  for (const std::size_t bytes : {kLargest, std::size_t{1}, std::size_t{4} << 20}) {
    ASSERT_EQ(cudaMemset(to.data(), 0xa5, kLargest), cudaSuccess);
    std::vector<std::byte> source(from.end() - static_cast<std::ptrdiff_t>(bytes), from.end());
    const std::vector<std::byte> expected = source;

    SY_ASSERT_OK(upload.Copy(source, to.data(), stream));
    // It may go, or change, from here on.
    std::fill(source.begin(), source.end(), std::byte{0});

    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(BytesAt(to.data(), bytes) == expected) << bytes;
    if (bytes < kLargest) {
      EXPECT_EQ(BytesAt(to.data() + bytes, 1).front(), std::byte{0xa5});
    }
  }
  (void)cudaStreamDestroy(stream);
}

TEST_F(PackerPoolTest, ManyThreadsPackAsOne) {
  // A projection of 5.2 MB takes two pieces of pinned memory.
  constexpr MoeShape kShape{.hidden = 2048, .intermediate = 1280, .experts = 6, .top_k = 1};
  constexpr int kThreads = 12;
  constexpr int kRounds = 3;
  std::vector<std::unique_ptr<RandomExpert>> experts;
  std::vector<std::unique_ptr<PackedExpert>> alone;
  ExpertPacker packer(&fault_);
  for (std::int32_t e = 0; e < kShape.experts; ++e) {
    experts.push_back(std::make_unique<RandomExpert>(kShape, 70 + static_cast<std::uint64_t>(e)));
    alone.push_back(OkOrAbort(packer.Pack(kShape, experts.back()->view())));
  }
  const auto bytes_of = [](const PackedExpert& expert) {
    const auto& packed = static_cast<const CudaPackedExpert&>(expert);
    return BytesAt(packed.facts().gate_up.weights, static_cast<std::size_t>(packed.bytes()));
  };
  PackerPool pool(&fault_, /*portable=*/false);
  std::vector<std::unique_ptr<PackedExpert>> packed(kThreads * kRounds);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
        for (int round = 0; round < kRounds; ++round) {
          const auto i = static_cast<std::size_t>(t * kRounds + round);
          packed[i] = OkOrAbort(pool.Pack(kShape, experts[i % experts.size()]->view()));
        }
      });
    }
  }
  for (std::size_t i = 0; i < packed.size(); ++i) {
    ASSERT_EQ(packed[i]->bytes(), alone[i % alone.size()]->bytes());
    EXPECT_TRUE(bytes_of(*packed[i]) == bytes_of(*alone[i % alone.size()])) << i;
  }
  EXPECT_FALSE(bytes_of(*alone[0]) == bytes_of(*alone[1]));
}

// Room for the experts and two packers, where four would be made.
TEST_F(PackerPoolTest, AFullDeviceIsLoadedByFewerPackers) {
  constexpr MoeShape kShape{.hidden = 4096, .intermediate = 4096, .experts = 4, .top_k = 1};
  constexpr std::int64_t kPart = std::int64_t{4096} * 4096 * 2;
  constexpr std::int64_t kRoom = 4 * 3 * kPart + 2 * 5 * kPart + (std::int64_t{48} << 20);
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  ASSERT_GT(static_cast<std::int64_t>(free), kRoom);
  const CudaMemory full = OkOrAbort(
      CudaMemory::OnDevice(static_cast<std::int64_t>(free) - kRoom, fault_, "filling the device"));
  const RandomExpert expert(kShape, 90);
  PackerPool pool(&fault_, /*portable=*/false);
  std::vector<absl::StatusOr<std::unique_ptr<PackedExpert>>> packed(4);
  {
    std::vector<std::jthread> threads;
    for (auto& each : packed) {
      threads.emplace_back([&] {
        ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
        each = pool.Pack(kShape, expert.view());
      });
    }
  }
  for (const auto& each : packed) SY_EXPECT_OK(each.status());
  // What does not fit at all is an error, and the pool serves on.
  EXPECT_TRUE(absl::IsResourceExhausted(
      pool.Pack({.hidden = 16384, .intermediate = 16384, .experts = 1, .top_k = 1}, expert.view())
          .status()));
  packed.pop_back();
  SY_EXPECT_OK(pool.Pack(kShape, expert.view()).status());
}

}  // namespace
}  // namespace switchyard
