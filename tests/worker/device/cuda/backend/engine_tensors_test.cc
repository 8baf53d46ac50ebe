// What tensors of an engine need of the CUDA device: the order with a stream of the engine's, rows
// with a stride, the kind of memory of others, and a thread's current device. Skipped, with the
// reason, where there is no GPU.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::OkOrAbort;

constexpr Duration kLong = std::chrono::seconds(20);
constexpr std::size_t kBytes = 10'000;

// A stream of the engine's, whose work ends when the test lets it.
class EngineStream {
 public:
  EngineStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&raw_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~EngineStream() {
    open_ = true;
    EXPECT_EQ(cudaStreamDestroy(raw_), cudaSuccess);
  }
  EngineStream(const EngineStream&) = delete;
  EngineStream& operator=(const EngineStream&) = delete;
  void Hold() {
    const auto wait = [](void* open) {
      while (!static_cast<std::atomic<bool>*>(open)->load()) std::this_thread::yield();
    };
    EXPECT_EQ(cudaLaunchHostFunc(raw_, wait, &open_), cudaSuccess);
  }
  void Release() { open_ = true; }
  [[nodiscard]] cudaStream_t raw() const { return raw_; }

 private:
  cudaStream_t raw_ = nullptr;
  std::atomic<bool> open_{false};
};

class EngineTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = CudaBackend::Create({});
    if (absl::IsFailedPrecondition(made.status())) GTEST_SKIP() << made.status();
    ASSERT_TRUE(made.ok()) << made.status();
    device_ = *std::move(made);
    stream_ = OkOrAbort(device_->MakeStream({.staging_bytes = std::size_t{1} << 20}));
    event_ = stream_->MakeEvent();
  }
  std::unique_ptr<Buffer> Take(std::size_t bytes, MemoryKind kind = MemoryKind::kDevice) {
    return OkOrAbort(device_->Allocate(bytes, kind));
  }
  absl::Status Finish() {
    const absl::Status recorded = stream_->Record(event_.get());
    if (!recorded.ok()) return recorded;
    if (!event_->Wait(kLong)) return absl::DeadlineExceededError("no event");
    return event_->status();
  }

  std::unique_ptr<CudaBackend> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceEvent> event_;
};

TEST_F(EngineTensorsTest, WorkBeginsAfterWhatAnotherStreamHolds) {
  const auto tensor = Take(kBytes);
  const auto pinned = Take(kBytes, MemoryKind::kPinnedHost);
  std::memset(pinned->data(), 1, kBytes);
  EngineStream engine;
  engine.Hold();
  ASSERT_EQ(cudaMemsetAsync(tensor->data(), 7, kBytes, engine.raw()), cudaSuccess);
  const CopyPiece piece{.to = pinned->data(), .from = tensor->data(), .bytes = kBytes};

  SY_ASSERT_OK(stream_->WaitFor(engine.raw()));
  SY_ASSERT_OK(stream_->Copy({&piece, 1}));
  SY_ASSERT_OK(stream_->Record(event_.get()));

  EXPECT_FALSE(event_->Wait(std::chrono::milliseconds(50)));
  engine.Release();
  ASSERT_TRUE(event_->Wait(kLong));
  EXPECT_EQ(std::vector<std::byte>(pinned->data(), pinned->data() + kBytes),
            std::vector<std::byte>(kBytes, std::byte{7}));
}

TEST_F(EngineTensorsTest, AStreamThatIsCapturedIsRefusedAndItsCaptureGoesOn) {
  const auto tensor = Take(kBytes);
  EngineStream engine;
  ASSERT_EQ(cudaStreamBeginCapture(engine.raw(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(tensor->data(), 7, kBytes, engine.raw()), cudaSuccess);

  EXPECT_THAT(stream_->WaitFor(engine.raw()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));

  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(engine.raw(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  SY_EXPECT_OK(stream_->WaitFor(engine.raw()));
  SY_EXPECT_OK(stream_->WaitFor(nullptr));
  SY_EXPECT_OK(Finish());
}

TEST_F(EngineTensorsTest, CopiesRowsWithAStrideAndNothingBetweenThem) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kRow = 66;
  constexpr std::size_t kStride = 100;
  const auto dense = Take(kRows * kRow, MemoryKind::kPinnedHost);
  const auto apart = Take(kRows * kStride);
  const auto back = Take(kRows * kStride, MemoryKind::kPinnedHost);
  for (std::size_t i = 0; i < kRows * kRow; ++i) dense->data()[i] = static_cast<std::byte>(i % 251);
  ASSERT_EQ(cudaMemset(apart->data(), 0xff, kRows * kStride), cudaSuccess);
  CopyPiece piece{.to = apart->data(),
                  .from = dense->data(),
                  .bytes = kRow,
                  .rows = kRows,
                  .to_stride = kStride,
                  .from_stride = kRow};
  SY_ASSERT_OK(stream_->Copy({&piece, 1}));
  const CopyPiece all{.to = back->data(), .from = apart->data(), .bytes = kRows * kStride};
  SY_ASSERT_OK(stream_->Copy({&all, 1}));
  SY_ASSERT_OK(Finish());

  for (std::size_t i = 0; i < kRows * kStride; ++i) {
    const std::size_t row = i / kStride;
    const std::size_t at = i % kStride;
    const auto wanted = at < kRow ? dense->data()[row * kRow + at] : std::byte{0xff};
    ASSERT_EQ(back->data()[i], wanted) << i;
  }
  std::vector<std::byte> pageable(kRows * kRow);
  piece.from = pageable.data();
  EXPECT_THAT(stream_->Copy({&piece, 1}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
}

TEST_F(EngineTensorsTest, KnowsWhoseMemoryAnAddressIs) {
  const auto tensor = Take(kBytes);
  const auto pinned = Take(kBytes, MemoryKind::kPinnedHost);
  const std::vector<std::byte> pageable(kBytes);

  EXPECT_EQ(OkOrAbort(device_->KindAt(tensor->data() + 100)), MemoryKind::kDevice);
  EXPECT_EQ(OkOrAbort(device_->KindAt(pinned->data() + 100)), MemoryKind::kPinnedHost);
  EXPECT_EQ(OkOrAbort(device_->KindAt(pageable.data())), MemoryKind::kHost);

  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) return;
  const auto other = OkOrAbort(CudaBackend::Create({.index = 1}));
  EXPECT_THAT(other->KindAt(tensor->data()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EngineStream engine;  // of device 0
  EXPECT_THAT(OkOrAbort(other->MakeStream({.staging_bytes = 4096}))->WaitFor(engine.raw()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  // An engine's thread keeps its device.
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

}  // namespace
}  // namespace switchyard
