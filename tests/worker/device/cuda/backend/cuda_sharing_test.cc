// Memory of a GPU that two processes share. The other one is cuda_sharing_peer, a program beside
// this one. Skipped, with the reason, where there is no GPU.
#include "worker/device/cuda/backend/cuda_sharing.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "tests/testing/line_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/backend/cuda_fixture.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = std::size_t{5} << 20;

bool Fill(const Buffer& buffer, int byte) {
  return cudaMemset(buffer.data(), byte, buffer.bytes()) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess;
}
// The value of all bytes; -1 if they differ.
int ByteOf(const Buffer& buffer) {
  std::vector<unsigned char> host(buffer.bytes());
  EXPECT_EQ(cudaMemcpy(host.data(), buffer.data(), host.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  for (const unsigned char byte : host) {
    if (byte != host.front()) return -1;
  }
  return host.front();
}

// The other process, with the orders of cuda_sharing_peer.cc.
class Peer : public testing::LineProcess {
 public:
  Peer() : LineProcess("cuda_sharing_peer", {}) {}
  std::string Do(const std::string& order) {
    Write(order);
    return Read();
  }
};

class CudaSharingTest : public testing::CudaFixture<> {
 protected:
  static std::string OrderToOpen(const SharedBuffer& shared) {
    return absl::StrCat("open ", absl::BytesToHexString(shared.key), " ", kBytes);
  }
};

TEST_F(CudaSharingTest, APeerWritesWhatIsReadHere) {
  SY_ASSERT_OK_AND_ASSIGN(const SharedBuffer shared, device_->AllocateShared(kBytes));
  ASSERT_TRUE(Fill(*shared.buffer, 0xff));
  Peer peer;
  ASSERT_EQ(peer.Do(OrderToOpen(shared)), "ok");

  ASSERT_EQ(peer.Do("fill 90"), "ok");

  EXPECT_EQ(ByteOf(*shared.buffer), 90);
}

// Goal: a peer that goes on writing after the end of an attachment disturbs nobody. Method: memory
// is freed while the peer has it open, and its place is asked for again.
TEST_F(CudaSharingTest, APeerThatWritesWhatHasBeenFreedHarmsNothing) {
  SY_ASSERT_OK_AND_ASSIGN(SharedBuffer shared, device_->AllocateShared(kBytes));
  Peer peer;
  ASSERT_EQ(peer.Do(OrderToOpen(shared)), "ok");

  shared = {};
  std::vector<SharedBuffer> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(*device_->AllocateShared(kBytes));
    ASSERT_TRUE(Fill(*others.back().buffer, 17));
  }
  EXPECT_EQ(peer.Do("fill 90"), "ok");
  for (const SharedBuffer& other : others) EXPECT_EQ(ByteOf(*other.buffer), 17);
}

TEST_F(CudaSharingTest, MemoryOfAProcessThatWasKilledCanBeWritten) {
  Peer peer;
  const std::string key = absl::HexStringToBytes(peer.Do(absl::StrCat("make ", kBytes)));
  SY_ASSERT_OK_AND_ASSIGN(const auto opened, device_->OpenShared(key, kBytes));
  ASSERT_TRUE(Fill(*opened, 1));

  peer.Kill();

  EXPECT_TRUE(Fill(*opened, 2));
  EXPECT_EQ(ByteOf(*opened), 2);
  SY_EXPECT_OK(device_->Allocate(kBytes, MemoryKind::kDevice).status());
}

TEST_F(CudaSharingTest, KeysOfNothingAndOfLessAreRefusedAndHarmNothing) {
  Peer peer;
  const std::string key = absl::HexStringToBytes(peer.Do(absl::StrCat("make ", kBytes)));
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);
  EXPECT_THAT(device_->OpenShared("", kBytes).status(), bad);
  EXPECT_THAT(device_->OpenShared(std::string(key.size(), 'x'), kBytes).status(), bad);
  EXPECT_THAT(device_->OpenShared(key, 100 * kBytes).status(), bad);
  // One that claims more than there is.
  std::string larger = key;
  const std::int64_t claimed = std::int64_t{1} << 40;
  std::memcpy(larger.data() + 8, &claimed, sizeof claimed);
  EXPECT_THAT(device_->OpenShared(larger, 100 * kBytes).status(), bad);
  // Handles that name no memory.
  for (std::size_t at = 16; at < key.size(); at += 7) {
    std::string broken = key;
    broken[at] = static_cast<char>(broken[at] ^ 0x55);
    const auto opened = device_->OpenShared(broken, kBytes);
    EXPECT_FALSE(absl::IsUnavailable(opened.status())) << opened.status();
  }

  SY_ASSERT_OK_AND_ASSIGN(const auto opened, device_->OpenShared(key, kBytes));
  EXPECT_TRUE(Fill(*opened, 3));
}

TEST_F(CudaSharingTest, ADeviceSharesNoMoreThanItMay) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device,
                          CudaBackend::Create({.shared_bytes_max = std::int64_t{8} << 20}));
  SY_ASSERT_OK_AND_ASSIGN(SharedBuffer first, device->AllocateShared(kBytes));

  const absl::Status second = device->AllocateShared(kBytes).status();

  EXPECT_THAT(second, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_THAT(std::string(second.message()), HasSubstr("shared_mib_max"));
  first = {};
  SY_EXPECT_OK(device->AllocateShared(kBytes).status());
}

}  // namespace
}  // namespace switchyard
