// The CUDA device behind the seam, against the CPU: runs over rows of several formats, encoding,
// sums, copies between kinds of memory, events and faults. tests/conformance holds what every
// device must do. Skipped, with the reason, where there is no GPU.
#include "worker/device/cuda/backend/cuda_stream.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/failure_scope.h"
#include "core/rng.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/backend/cuda_fixture.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::DeviceCopies;
using testing::FailsWith;
using testing::GaussianBf16;
using testing::OkOrAbort;
using testing::RandomExpert;

constexpr Duration kLong = std::chrono::seconds(20);
constexpr std::uint64_t kSeed = 91;

absl::Status Finish(Stream& stream) {
  const auto event = stream.MakeEvent();
  const absl::Status recorded = stream.Record(event.get());
  if (!recorded.ok()) return recorded;
  if (!event->Wait(kLong)) return absl::DeadlineExceededError("no event");
  return event->status();
}

// A layer of experts and rows in several formats for it.
class Layer {
 public:
  static constexpr std::size_t kRowsOfInput = 23;
  static constexpr std::size_t kWidth = 4;

  explicit Layer(DeviceBackend& device, const MoeShape& shape) : device_(&device), shape_(shape) {
    std::vector<TableEntry> entries;
    for (std::int32_t e = 0; e < shape.experts; ++e) {
      const RandomExpert expert(shape, kSeed + static_cast<std::uint64_t>(e));
      ExpertWeightsView view = expert.view();
      // Unlike rules in one layer, so that both forms of rows stand beside each other.
      if (e % 2 == 1) view.inputs = {ActivationFormat::kInt8Row};
      entries.push_back({ExpertId{e}, OkOrAbort(device.Pack(shape, view))});
    }
    table_ = OkOrAbort(device.MakeTable(std::move(entries)));
    SeededRng rng(kSeed);
    for (const WireFormat& format : {kBf16Format, kFp8Format, kInt8Format, kNvfp4Format}) {
      const bool global = format == kNvfp4Format;
      codecs_.push_back(format == kBf16Format
                            ? nullptr
                            : OkOrAbort(device.MakeCodec(
                                  {.format = format, .global_scale = global ? 600.0F : 1.0F})));
      const auto cpu = OkOrAbort(CpuBackend::Create({.kernel_family = "portable_fp32"}));
      const auto codec =
          OkOrAbort(cpu->MakeCodec({.format = format, .global_scale = global ? 600.0F : 1.0F}));
      const RowBytes bytes = RowBytesOf(format, shape.hidden);
      const std::vector<Bf16> x = GaussianBf16(kRowsOfInput * hidden(), 1.0, rng);
      std::vector<const Bf16*> rows(kRowsOfInput);
      for (std::size_t r = 0; r < kRowsOfInput; ++r) rows[r] = x.data() + r * hidden();
      data_.emplace_back(kRowsOfInput * static_cast<std::size_t>(bytes.data));
      scales_.emplace_back(kRowsOfInput * static_cast<std::size_t>(bytes.scales));
      AsHostCodec(*codec).Encode(rows, shape.hidden, data_.back().data(), scales_.back().data());
    }
    slots_.resize(kRowsOfInput * kWidth);
    weights_.resize(slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i] =
          static_cast<std::int32_t>(rng.Below(static_cast<std::size_t>(shape.experts) + 1)) - 1;
      weights_[i] = static_cast<float>(rng.Uniform());
    }
    std::fill_n(slots_.begin() + 5 * kWidth, kWidth, -1);  // a row without experts
  }

  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(shape_.hidden); }
  std::vector<std::byte>& bf16_rows() { return data_[0]; }

  // Of all inputs; NaN before. `nan_rows` gets the sum over the inputs.
  std::vector<Bf16> Run(std::int64_t pairs_max, std::uint32_t* nan_rows = nullptr) {
    std::vector<Bf16> out(data_.size() * kRowsOfInput * hidden(), 0x7fa5);
    std::vector<ExpertInput> inputs;
    for (std::size_t i = 0; i < data_.size(); ++i) {
      inputs.push_back({.codec = codecs_[i].get(),
                        .rows = data_[i].data(),
                        .scales = scales_[i].data(),
                        .count = kRowsOfInput,
                        .slots = slots_.data(),
                        .weights = weights_.data(),
                        .out = out.data() + i * kRowsOfInput * hidden()});
    }
    const auto workspace = OkOrAbort(device_->MakeWorkspace(shape_, pairs_max));
    const auto stream = OkOrAbort(device_->MakeStream({}));
    std::optional<DeviceCopies> copies;
    std::vector<CopyPiece> back;
    if (!device_->host_access()) {
      copies.emplace(*device_, shape_.hidden, inputs);
      SY_EXPECT_OK(stream->Copy(copies->in()));
      back.assign(copies->out().begin(), copies->out().end());
      for (CopyPiece& piece : back) piece.bytes /= 2;  // answers are BF16 here
    }
    SY_EXPECT_OK(stream->Run({.experts = table_.get(),
                              .workspace = workspace.get(),
                              .inputs = inputs,
                              .width = kWidth,
                              .combine = CombineUnit::kPerWorker}));
    if (copies.has_value()) {
      SY_EXPECT_OK(stream->Copy(back));
    }
    SY_EXPECT_OK(Finish(*stream));
    if (nan_rows != nullptr) {
      *nan_rows = 0;
      for (const ExpertInput& input : inputs) *nan_rows += input.nan_rows;
    }
    return out;
  }

 private:
  DeviceBackend* const device_;
  const MoeShape shape_;
  std::unique_ptr<ExpertTable> table_;
  std::vector<std::unique_ptr<Codec>> codecs_;
  std::vector<std::vector<std::byte>> data_;
  std::vector<std::vector<std::byte>> scales_;
  std::vector<std::int32_t> slots_;
  std::vector<float> weights_;
};

std::vector<double> Doubles(const std::vector<Bf16>& values) {
  std::vector<double> doubles;
  for (const Bf16 bits : values) doubles.push_back(static_cast<double>(Bf16ToFloat(bits)));
  return doubles;
}
std::vector<float> Floats(const std::vector<Bf16>& values) {
  std::vector<float> floats;
  for (const Bf16 bits : values) floats.push_back(Bf16ToFloat(bits));
  return floats;
}

class CudaStreamTest : public testing::CudaFixture<> {
 protected:
  std::unique_ptr<Buffer> Take(std::size_t bytes, MemoryKind kind = MemoryKind::kDevice) {
    return OkOrAbort(device_->Allocate(bytes, kind));
  }
};

TEST_F(CudaStreamTest, AdvertisesEveryCodecAndScheme) {
  EXPECT_EQ(device_->capabilities().wire_dtypes.size(), 4U)
      << device_->capabilities().DebugString();
  for (const QuantSchemeInfo& row : AllQuantSchemes()) {
    EXPECT_EQ(device_->capabilities().Takes(row.scheme), row.scheme != QuantScheme::kMxfp8)
        << row.name;
  }
}

TEST_F(CudaStreamTest, SumsRowsOfEveryFormatAsTheCpuDoes) {
  const auto cpu = OkOrAbort(CpuBackend::Create({.kernel_family = "portable_fp32"}));
  for (const MoeShape& shape :
       {MoeShape{.hidden = 256, .intermediate = 128, .experts = 6, .top_k = 4},
        MoeShape{.hidden = 332, .intermediate = 205, .experts = 3, .top_k = 4}}) {
    Layer on_cpu(*cpu, shape);
    Layer on_gpu(*device_, shape);

    const std::vector<Bf16> got = on_gpu.Run(4096);

    const std::vector<Bf16> want = on_cpu.Run(4096);
    EXPECT_LE(CalcDiff(Floats(got), Doubles(want)), 1e-4) << shape.hidden;
    const std::size_t at = 5 * on_gpu.hidden();
    EXPECT_TRUE(std::all_of(got.begin() + static_cast<long>(at),
                            got.begin() + static_cast<long>(at + on_gpu.hidden()),
                            [](Bf16 bits) { return bits == 0; }))
        << "a row without experts is zeros";
  }
}

TEST_F(CudaStreamTest, PassesDoNotChangeABit) {
  Layer layer(*device_, {.hidden = 256, .intermediate = 128, .experts = 6, .top_k = 4});
  const std::vector<Bf16> whole = layer.Run(4096);
  for (const std::int64_t pairs_max : {4, 7, 50}) {
    EXPECT_EQ(layer.Run(pairs_max), whole) << pairs_max;
  }
}

TEST_F(CudaStreamTest, CountsRowsWithNan) {
  Layer layer(*device_, {.hidden = 256, .intermediate = 128, .experts = 6, .top_k = 4});
  auto* const rows = reinterpret_cast<Bf16*>(layer.bf16_rows().data());
  rows[2 * 256 + 9] = 0x7fc0;
  rows[5 * 256] = 0x7fc0;  // a row without experts
  std::uint32_t nan_rows = 0;

  (void)layer.Run(4096, &nan_rows);
  EXPECT_EQ(nan_rows, 1U);
  (void)layer.Run(7, &nan_rows);
  EXPECT_EQ(nan_rows, 1U);
}

TEST_F(CudaStreamTest, CopiesBetweenEveryTwoKindsOfMemory) {
  constexpr std::size_t kBytes = 3'000'017;
  const auto stream = OkOrAbort(device_->MakeStream({}));
  SeededRng rng(kSeed);
  std::vector<std::byte> from(kBytes);
  for (std::byte& byte : from) byte = static_cast<std::byte>(rng.Next());
  const auto first = Take(kBytes);
  const auto pinned = Take(kBytes, MemoryKind::kPinnedHost);
  const auto second = Take(kBytes);
  std::vector<std::byte> to(kBytes);
  // In pieces that are neighbors, and one that is not.
  const std::vector<CopyPiece> in{{first->data(), from.data(), 1000},
                                  {first->data() + 1000, from.data() + 1000, 17},
                                  {first->data() + 2000, from.data() + 2000, kBytes - 2000},
                                  {first->data() + 1017, from.data() + 1017, 983}};
  const CopyPiece down{pinned->data(), first->data(), kBytes};
  const CopyPiece up{second->data(), pinned->data(), kBytes};
  const std::vector<CopyPiece> back{{to.data() + 500, second->data() + 500, kBytes - 500},
                                    {to.data(), second->data(), 250},
                                    {to.data() + 250, second->data() + 250, 250}};

  SY_ASSERT_OK(stream->Copy(in));
  SY_ASSERT_OK(stream->Copy({&down, 1}));
  SY_ASSERT_OK(stream->Copy({&up, 1}));
  SY_ASSERT_OK(stream->Copy(back));
  SY_ASSERT_OK(Finish(*stream));

  EXPECT_EQ(to, from);
  EXPECT_EQ(std::memcmp(pinned->data(), from.data(), kBytes), 0);
}

TEST_F(CudaStreamTest, ReachesMappedMemoryItselfAndCopiesAsBeforeWhenItIsGone) {
  constexpr std::size_t kBytes = 3'000'017;
  const auto stream = OkOrAbort(device_->MakeStream({}));
  SeededRng rng(kSeed);
  std::vector<std::byte> from(kBytes);
  for (std::byte& byte : from) byte = static_cast<std::byte>(rng.Next());
  const auto buffer = Take(kBytes);
  auto mapping = device_->MapHost(from);
  EXPECT_NE(mapping, nullptr);
  EXPECT_EQ(device_->MapHost(from), nullptr) << "mapped already";
  EXPECT_EQ(device_->MapHost({}), nullptr);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::byte> to(kBytes);
    const auto mapped_too = round == 0 ? device_->MapHost(to) : nullptr;
    const CopyPiece in{buffer->data(), from.data(), kBytes};
    const std::vector<CopyPiece> back{{to.data(), buffer->data(), 1000},
                                      {to.data() + 1000, buffer->data() + 1000, kBytes - 1000}};
    SY_ASSERT_OK(stream->Copy({&in, 1}));
    SY_ASSERT_OK(stream->Copy(back));
    SY_ASSERT_OK(Finish(*stream));
    EXPECT_EQ(to, from) << round;
    mapping.reset();
  }
}

TEST_F(CudaStreamTest, RefusesCopiesThatItsStagingMemoryCannotHold) {
  constexpr auto kBytes = static_cast<std::size_t>(StagingPool::kBytes) / 3;
  const auto stream = OkOrAbort(device_->MakeStream({}));
  const auto buffer = Take(2 * kBytes);
  const std::vector<std::byte> from(2 * kBytes);
  const CopyPiece too_large{buffer->data(), from.data(), 2 * kBytes};
  const CopyPiece large{buffer->data(), from.data(), kBytes};

  EXPECT_THAT(stream->Copy({&too_large, 1}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  SY_ASSERT_OK(stream->Copy({&large, 1}));
  EXPECT_THAT(stream->Copy({&large, 1}),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  SY_ASSERT_OK(Finish(*stream));
  SY_ASSERT_OK(stream->Copy({&large, 1}));
  SY_ASSERT_OK(Finish(*stream));
}

TEST_F(CudaStreamTest, AddsRowsInTheOrderGiven) {
  constexpr std::size_t kHidden = 130;
  SeededRng rng(kSeed);
  const std::vector<Bf16> x = GaussianBf16(4 * kHidden, 1.0, rng);
  const auto rows = Take(x.size() * sizeof(Bf16));
  const auto y = Take(3 * kHidden * sizeof(float));
  const auto stream = OkOrAbort(device_->MakeStream({}));
  const auto* base = reinterpret_cast<const Bf16*>(rows->data());
  const std::vector<const Bf16*> terms{base, base + kHidden, base + 2 * kHidden,
                                       base + 3 * kHidden};
  const std::vector<float> weights{0.25F, 1.5F, -3.0F, 0.7F};
  const std::vector<std::uint32_t> begin{0, 3, 3, 4};
  std::vector<float> got(3 * kHidden);
  const CopyPiece in{rows->data(), reinterpret_cast<const std::byte*>(x.data()),
                     x.size() * sizeof(Bf16)};
  const CopyPiece back{reinterpret_cast<std::byte*>(got.data()), y->data(),
                       got.size() * sizeof(float)};
  SY_ASSERT_OK(stream->Copy({&in, 1}));
  for (const bool weighted : {false, true}) {
    SY_ASSERT_OK(stream->Sum(
        {.terms = terms,
         .weights = weighted ? std::span<const float>(weights) : std::span<const float>(),
         .begin = begin,
         .hidden = kHidden,
         .y = y->data(),
         .y_stride = kHidden}));
    SY_ASSERT_OK(stream->Copy({&back, 1}));
    SY_ASSERT_OK(Finish(*stream));
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t i = 0; i < kHidden; ++i) {
        float want = 0;
        for (std::size_t t = begin[row]; t < begin[row + 1]; ++t) {
          const float term = Bf16ToFloat(x[t * kHidden + i]);
          want = weighted ? std::fma(weights[t], term, want) : want + term;
        }
        ASSERT_EQ(got[row * kHidden + i], want) << row << ", " << i << ", " << weighted;
      }
    }
  }
}

TEST_F(CudaStreamTest, EventsAreDoneBeforeTheyAreRecordedAndTellOfProgress) {
  std::atomic<int> progress{0};
  const auto stream =
      OkOrAbort(device_->MakeStream({.on_progress = [&] { progress.fetch_add(1); }}));
  const auto buffer = Take(1 << 20);
  const std::vector<std::byte> from(1 << 20);
  const CopyPiece in{buffer->data(), from.data(), from.size()};
  std::vector<std::unique_ptr<DeviceEvent>> events;
  for (int i = 0; i < 20; ++i) {
    events.push_back(stream->MakeEvent());
    EXPECT_TRUE(events.back()->done());
    SY_ASSERT_OK(stream->Copy({&in, 1}));
    SY_ASSERT_OK(stream->Record(events.back().get()));
  }
  for (const auto& event : events) {
    EXPECT_TRUE(event->Wait(kLong));
    SY_EXPECT_OK(event->status());
  }
  const auto last = stream->MakeEvent();
  SY_ASSERT_OK(stream->Record(last.get()));
  ASSERT_TRUE(last->Wait(kLong));
  while (progress.load() < 21) {
  }
}

TEST_F(CudaStreamTest, AllocatesNothingOnItsWay) {
  constexpr MoeShape kShape{.hidden = 256, .intermediate = 128, .experts = 1, .top_k = 1};
  const RandomExpert expert(kShape, kSeed);
  std::vector<TableEntry> entries;
  entries.push_back({ExpertId{0}, OkOrAbort(device_->Pack(kShape, expert.view()))});
  const auto table = OkOrAbort(device_->MakeTable(std::move(entries)));
  const auto workspace = OkOrAbort(device_->MakeWorkspace(kShape, 64));
  const auto stream = OkOrAbort(device_->MakeStream({}));
  const auto event = stream->MakeEvent();
  const auto rows = Take(8 * 512);
  const auto out = Take(8 * 512);
  const std::vector<std::byte> x(8 * 512);
  const std::vector<std::int32_t> slots(8, 0);
  const CopyPiece in{rows->data(), x.data(), x.size()};
  ExpertInput input{.rows = rows->data(), .count = 8, .slots = slots.data(), .out = out->data()};
  const ExpertRun run{.experts = table.get(), .workspace = workspace.get(), .inputs = {&input, 1}};
  std::uint64_t allocated = 0;
  for (int round = 0; round < 3; ++round) {  // the runtime loads kernels in the first
    const std::uint64_t before = testing::AllocationsOfThisThread();
    ASSERT_TRUE(stream->Copy({&in, 1}).ok());
    ASSERT_TRUE(stream->Run(run).ok());
    ASSERT_TRUE(stream->Record(event.get()).ok());
    ASSERT_TRUE(event->Wait(kLong));
    allocated = testing::AllocationsOfThisThread() - before;
  }
  EXPECT_EQ(allocated, 0U);
}

// What does not fit is refused with its size, and the device serves on.
TEST_F(CudaStreamTest, TooLittleMemoryIsNamedAndHarmsNothing) {
  constexpr std::size_t kFarTooMuch = std::size_t{1} << 50;

  const absl::Status refused = device_->Allocate(kFarTooMuch, MemoryKind::kDevice).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_NE(refused.message().find("bytes are needed, and "), absl::string_view::npos) << refused;
  EXPECT_NE(refused.message().find(" are free"), absl::string_view::npos) << refused;
  const auto stream = OkOrAbort(device_->MakeStream({}));
  const auto buffer = Take(64);
  const std::vector<std::byte> from(64);
  const CopyPiece in{buffer->data(), from.data(), from.size()};
  SY_ASSERT_OK(stream->Copy({&in, 1}));
  SY_EXPECT_OK(Finish(*stream));
}

// A sticky error of the runtime. It takes the process with it, so it has one of its own.
void LoseTheDevice() {
  auto device = OkOrAbort(CudaBackend::Create({}));
  const auto stream = OkOrAbort(device->MakeStream({}));
  const auto first = stream->MakeEvent();
  const auto second = stream->MakeEvent();
  const auto buffer = OkOrAbort(device->Allocate(1024, MemoryKind::kDevice));
  const auto codec = OkOrAbort(device->MakeCodec({.format = kFp8Format}));
  const std::vector<std::uint32_t> indices(64, 1U << 30);  // far behind the buffer
  const EncodeRun run{.codec = codec.get(),
                      .x = reinterpret_cast<const Bf16*>(buffer->data()),
                      .x_stride = 128,
                      .indices = indices,
                      .hidden = 128,
                      .data = buffer->data(),
                      .scales = buffer->data()};
  const bool enqueued = stream->Encode(run).ok();
  // The runtime may know of the error before the event is recorded.
  absl::Status why = stream->Record(first.get());
  const bool ended = !why.ok() || first->Wait(kLong);
  if (why.ok()) why = first->status();
  const bool named = absl::IsUnavailable(why) && ReasonOf(why) == Reason::kWorkerLost &&
                     ScopeOf(why) == FailureScope::kWorker;
  const bool final = stream->Record(second.get()) == why && stream->Encode(run) == why &&
                     device->MakeStream({}).status() == why;
  std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
  std::_Exit(enqueued && ended && named && final ? 0 : 1);
}

TEST_F(CudaStreamTest, AFaultIsNamedAndFinal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LoseTheDevice(), ::testing::ExitedWithCode(0), "CUDA device 0 is lost");
}

}  // namespace
}  // namespace switchyard
