// What tensors of an engine need of the CUDA device: the order with a stream of the engine's, rows
// with a stride, the kind of memory of others, a thread's current device, and rows in mapped memory
// of the host. Skipped, with the reason, where there is no GPU.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/rng.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/backend/cuda_fixture.h"
#include "worker/device/cpu/cpu_backend.h"
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

class EngineTensorsTest : public testing::CudaFixture<> {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    if (device_ == nullptr) return;
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

// Memory of the host that both devices reach, poisoned.
struct Mapped {
  Mapped(CudaBackend& device, std::size_t size)
      : bytes(size, std::byte{0xff}), mapping(device.MapHost(bytes)) {
    EXPECT_NE(mapping, nullptr);
  }
  std::vector<std::byte> bytes;
  std::unique_ptr<HostMapping> mapping;
};

// Random shapes, strides and addresses. Both devices write into memory of the host, of which every
// byte is compared: the rows, and the poison between and behind them.
class RowsInMappedMemory : public EngineTensorsTest {
 protected:
  void SetUp() override {
    EngineTensorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    cpu_ = OkOrAbort(CpuBackend::Create({.kernel_family = "scalar"}));
    cpu_stream_ = OkOrAbort(cpu_->MakeStream({}));
    cpu_event_ = cpu_stream_->MakeEvent();
  }
  void FinishBoth() {
    SY_ASSERT_OK(Finish());
    SY_ASSERT_OK(cpu_stream_->Record(cpu_event_.get()));
    ASSERT_TRUE(cpu_event_->Wait(kLong));
    SY_ASSERT_OK(cpu_event_->status());
  }
  // [rows, stride], on the GPU, from `values` on the host.
  std::unique_ptr<Buffer> OnGpu(const std::vector<Bf16>& values) {
    const std::size_t bytes = values.size() * sizeof(Bf16);
    auto buffer = Take(bytes);
    EXPECT_EQ(cudaMemcpy(buffer->data(), values.data(), bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    return buffer;
  }

  SeededRng rng_{7};
  std::unique_ptr<DeviceBackend> cpu_;
  std::unique_ptr<Stream> cpu_stream_;
  std::unique_ptr<DeviceEvent> cpu_event_;
};

TEST_F(RowsInMappedMemory, AreEncodedAsTheCpuEncodesThem) {
  for (const WireFormat& format : {kBf16Format, kFp8Format, kInt8Format, kNvfp4Format}) {
    const auto codec = OkOrAbort(device_->MakeCodec({format}));
    const auto cpu_codec = OkOrAbort(cpu_->MakeCodec({format}));
    for (const std::int64_t hidden : {16, 130, 256, 2048, 7168}) {
      const auto stride = hidden + static_cast<std::int64_t>(rng_.Below(2) * 8);
      const std::vector<Bf16> x =
          testing::GaussianBf16(static_cast<std::size_t>(50 * stride), 1, rng_);
      const auto on_gpu = OnGpu(x);
      std::vector<std::uint32_t> indices;
      for (int i = 0; i < 77; ++i) indices.push_back(static_cast<std::uint32_t>(rng_.Below(50)));
      const RowBytes row = RowBytesOf(format, hidden);
      const auto data = indices.size() * static_cast<std::size_t>(row.data);
      const std::size_t scales_at = (data + 63) / 64 * 64;
      Mapped got(*device_, scales_at + indices.size() * static_cast<std::size_t>(row.scales) + 99);
      std::vector<std::byte> want(got.bytes.size(), std::byte{0xff});
      EncodeRun run{.codec = codec.get(),
                    .x = reinterpret_cast<const Bf16*>(on_gpu->data()),
                    .x_stride = stride,
                    .indices = indices,
                    .hidden = hidden,
                    .data = got.bytes.data(),
                    .scales = got.bytes.data() + scales_at};
      SY_ASSERT_OK(stream_->Encode(run));
      run.codec = cpu_codec.get();
      run.x = x.data();
      run.data = want.data();
      run.scales = want.data() + scales_at;
      SY_ASSERT_OK(cpu_stream_->Encode(run));
      FinishBoth();

      EXPECT_EQ(got.bytes, want) << WireFormatName(format) << ", hidden " << hidden;
    }
  }
}

TEST_F(RowsInMappedMemory, AreSummedAsTheCpuSumsThem) {
  for (const std::int64_t hidden : {8, 130, 257, 2048, 2056, 7168}) {
    const auto width = static_cast<std::size_t>(hidden);
    // At an odd address of BF16 for some, so that no load of sixteen bytes is possible.
    const std::size_t first = rng_.Below(2);
    Mapped rows(*device_, (64 * width + 1) * sizeof(Bf16));
    const std::vector<Bf16> values = testing::GaussianBf16(64 * width, 1, rng_);
    auto* const base = reinterpret_cast<Bf16*>(rows.bytes.data()) + first;
    std::memcpy(base, values.data(), values.size() * sizeof(Bf16));
    std::vector<const Bf16*> terms;
    std::vector<float> weights;
    std::vector<std::uint32_t> begin{0};
    for (int row = 0; row < 41; ++row) {
      // Up to 40 terms: more than the kernel keeps at once.
      for (std::uint64_t n = row % 9 == 0 ? 40 : rng_.Below(10); n > 0; --n) {
        terms.push_back(base + rng_.Below(64) * width);
        weights.push_back(static_cast<float>(rng_.Uniform() * 4 - 2));
      }
      begin.push_back(static_cast<std::uint32_t>(terms.size()));
    }
    for (const bool weighted : {false, true}) {
      for (const OutputDtype dtype : {OutputDtype::kF32, OutputDtype::kBf16}) {
        const std::size_t size = dtype == OutputDtype::kF32 ? sizeof(float) : sizeof(Bf16);
        const std::size_t stride = width + rng_.Below(3);
        Mapped got(*device_, 41 * stride * size + 50);
        std::vector<std::byte> want(got.bytes.size(), std::byte{0xff});
        SumRun run{.terms = terms,
                   .weights = weighted ? std::span<const float>(weights) : std::span<const float>(),
                   .begin = begin,
                   .hidden = hidden,
                   .y = got.bytes.data(),
                   .y_stride = static_cast<std::int64_t>(stride),
                   .y_dtype = dtype};
        SY_ASSERT_OK(stream_->Sum(run));
        run.y = want.data();
        SY_ASSERT_OK(cpu_stream_->Sum(run));
        FinishBoth();

        EXPECT_EQ(got.bytes, want) << "hidden " << hidden << ", weighted " << weighted << ", size "
                                   << size << ", first " << first;
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
