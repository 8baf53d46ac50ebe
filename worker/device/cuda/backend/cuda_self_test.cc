#include "worker/device/cuda/backend/cuda_self_test.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/calc_diff.h"
#include "core/rng.h"
#include "worker/device/cpu/codec/codec_scaled.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kSeed = 0x5eed;
constexpr std::int64_t kRows = 37;
// h is rounded to BF16 here and kept in double by the scalar kernels.
constexpr double kProductDiffMax = 2.5e-5;
// Sums of codes in another order may round h the other way, by a step of its format.
constexpr double kRoundedDiffMax = 2e-4;
constexpr Duration kPatience = std::chrono::seconds(10);
constexpr MoeShape kShape{.hidden = 300, .intermediate = 200, .experts = 1, .top_k = 1};

absl::Status Failed(const std::string& what) {
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("self-test of the CUDA device: ", what,
                                "; it is not advertised: report the GPU and its driver"));
}

absl::Status Finish(Stream& stream) {
  const std::unique_ptr<DeviceEvent> event = stream.MakeEvent();
  SY_RETURN_IF_ERROR(stream.Record(event.get()));
  if (!event->Wait(kPatience)) return Failed("no event within ten seconds");
  return event->status();
}

enum class Codes : std::uint8_t { kBf16, kE4m3, kInt8, kInt4, kE2m1 };
enum class Scales : std::uint8_t { kNone, kOutputs, kBlocks, kGroups };

// One expert, its rows and what they become.
struct Case {
  std::string name;
  Codes codes = Codes::kBf16;
  Scales scales = Scales::kNone;
  ActivationSpec rounding{};
  double diff_max = kProductDiffMax;
};

// Integers to 15 have exact codes of E4M3 and INT8, those above of INT8 only, halves to 1.5 of
// E2M1.
double MostOf(Codes codes) {
  switch (codes) {
    case Codes::kInt8:
      return 127.0;
    case Codes::kInt4:
      return 7.0;
    case Codes::kE2m1:
      return 3.0;
    case Codes::kE4m3:
    case Codes::kBf16:
      break;
  }
  return 15.0;
}

std::vector<Bf16> Values(std::int64_t count, Codes codes, double deviation, SeededRng& rng) {
  std::vector<Bf16> values(static_cast<std::size_t>(count));
  for (Bf16& value : values) {
    double sum = 0;  // near enough to a normal distribution
    for (int i = 0; i < 8; ++i) sum += rng.Uniform() - 0.5;
    const double normal = sum * std::sqrt(12.0 / 8.0);
    if (codes == Codes::kBf16) {
      value = FloatToBf16(static_cast<float>(normal * deviation));
    } else {
      const double most = MostOf(codes);
      const double code = std::nearbyint(std::fmax(-most, std::fmin(most, normal * most / 3.0)));
      value = FloatToBf16(static_cast<float>(codes == Codes::kE2m1 ? code / 2.0 : code));
    }
  }
  return values;
}

class Expert {
 public:
  explicit Expert(const Case& one) : case_(one), rng_(kSeed) {
    const std::int64_t size = std::int64_t{kShape.hidden} * kShape.intermediate;
    gate_ = Values(size, one.codes, 2.0 / std::sqrt(kShape.hidden), rng_);
    up_ = Values(size, one.codes, 1.0 / std::sqrt(kShape.hidden), rng_);
    down_ = Values(size, one.codes, 1.0 / std::sqrt(kShape.intermediate), rng_);
    rows_ = Values(kRows * kShape.hidden, Codes::kBf16, 1.0, rng_);
    // Codes are large: scales bring the sums back to where silu is no straight line.
    const double unit = one.codes == Codes::kBf16 ? 1.0 : 0.3 / MostOf(one.codes);
    scales_.resize(static_cast<std::size_t>(kShape.hidden) * 3 + 64);
    for (float& scale : scales_) scale = static_cast<float>((0.5 + rng_.Uniform()) * unit);
  }

  [[nodiscard]] ExpertWeightsView view() const {
    ExpertWeightsView view{.gate = gate_, .up = up_, .down = down_};
    view.gate_scales = ScalesOf(kShape.intermediate, kShape.hidden);
    view.up_scales = ScalesOf(kShape.intermediate, kShape.hidden);
    view.down_scales = ScalesOf(kShape.hidden, kShape.intermediate);
    if (case_.scales == Scales::kOutputs) {
      view.down_bias = std::span<const float>(scales_).first(kShape.hidden);
    }
    view.inputs = case_.rounding;
    view.middle = case_.rounding;
    return view;
  }
  [[nodiscard]] const std::vector<Bf16>& rows() const { return rows_; }

 private:
  [[nodiscard]] WeightScalesView ScalesOf(std::int64_t outputs, std::int64_t k) const {
    const std::span<const float> all(scales_);
    switch (case_.scales) {
      case Scales::kOutputs:
        return {.tensor = 0.75F, .channels = all.first(static_cast<std::size_t>(outputs))};
      case Scales::kBlocks:
        return {.blocks =
                    all.first(static_cast<std::size_t>(ScaleBlocks(outputs) * ScaleBlocks(k)))};
      case Scales::kGroups:
        return {.groups = all.first(static_cast<std::size_t>(outputs * ScaleBlocks(k)))};
      case Scales::kNone:
        break;
    }
    return {};
  }

  const Case& case_;
  SeededRng rng_;
  std::vector<Bf16> gate_;
  std::vector<Bf16> up_;
  std::vector<Bf16> down_;
  std::vector<Bf16> rows_;
  std::vector<float> scales_;
};

// The answers of `device` to the expert's rows, in FP32, `copies` times over. The device reads them
// where it can.
absl::StatusOr<std::vector<float>> Answers(DeviceBackend& device, const Expert& expert,
                                           std::uint32_t copies = 1) {
  std::vector<Bf16> x;
  for (std::uint32_t i = 0; i < copies; ++i) {
    x.insert(x.end(), expert.rows().begin(), expert.rows().end());
  }
  const auto count = static_cast<std::uint32_t>(kRows) * copies;
  SY_ASSIGN_OR_RETURN(std::shared_ptr<const PackedExpert> packed,
                      device.Pack(kShape, expert.view()));
  SY_ASSIGN_OR_RETURN(const auto table, device.MakeTable({{ExpertId{0}, std::move(packed)}}));
  SY_ASSIGN_OR_RETURN(const auto workspace, device.MakeWorkspace(kShape, count));
  SY_ASSIGN_OR_RETURN(const auto stream, device.MakeStream({.work_class = WorkClass::kPrefill}));
  const std::size_t rows_bytes = x.size() * sizeof(Bf16);
  std::vector<float> out(x.size(), std::numeric_limits<float>::quiet_NaN());
  const std::size_t out_bytes = out.size() * sizeof(float);
  SY_ASSIGN_OR_RETURN(const auto rows, device.Allocate(rows_bytes, MemoryKind::kDevice));
  SY_ASSIGN_OR_RETURN(const auto answers, device.Allocate(out_bytes, MemoryKind::kDevice));
  const CopyPiece in{rows->data(), reinterpret_cast<const std::byte*>(x.data()), rows_bytes};
  const CopyPiece back{reinterpret_cast<std::byte*>(out.data()), answers->data(), out_bytes};
  const std::vector<std::int32_t> slots(count, 0);
  ExpertInput input{
      .rows = rows->data(), .count = count, .slots = slots.data(), .out = answers->data()};
  SY_RETURN_IF_ERROR(stream->Copy({&in, 1}));
  SY_RETURN_IF_ERROR(stream->Run({.experts = table.get(),
                                  .workspace = workspace.get(),
                                  .inputs = {&input, 1},
                                  .out_dtype = OutputDtype::kF32}));
  SY_RETURN_IF_ERROR(stream->Copy({&back, 1}));
  SY_RETURN_IF_ERROR(Finish(*stream));
  return out;
}

absl::Status TestCase(DeviceBackend& device, DeviceBackend& scalar, const Case& one) {
  const Expert expert(one);
  SY_ASSIGN_OR_RETURN(const std::vector<float> want, Answers(scalar, expert));
  SY_ASSIGN_OR_RETURN(const std::vector<float> got, Answers(device, expert));
  const double diff = CalcDiff(got, want);
  if (diff <= one.diff_max) return absl::OkStatus();
  return Failed(absl::StrCat("experts with ", one.name, " differ from the scalar kernels by ", diff,
                             ", more than ", one.diff_max));
}

// Few rows go through the products of decode, many through those of prefill, where there are some.
absl::Status TestSameBits(DeviceBackend& device, const Case& one) {
  constexpr std::uint32_t kCopies = 9;
  const Expert expert(one);
  SY_ASSIGN_OR_RETURN(const std::vector<float> few, Answers(device, expert));
  SY_ASSIGN_OR_RETURN(const std::vector<float> many, Answers(device, expert, kCopies));
  for (std::uint32_t i = 0; i < kCopies; ++i) {
    if (std::memcmp(few.data(), many.data() + i * few.size(), few.size() * sizeof(float)) == 0) {
      continue;
    }
    return Failed(
        absl::StrCat("experts with ", one.name, " give a row other bits among many rows"));
  }
  return absl::OkStatus();
}

// A row for each kind of trouble; the last group of each is short.
std::vector<Bf16> CodecRows(std::int64_t hidden) {
  SeededRng rng(kSeed);
  std::vector<Bf16> rows;
  for (const double deviation : {1.0, 1e-6, 1e4, 0.0}) {
    const std::vector<Bf16> row = Values(hidden, Codes::kBf16, deviation, rng);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const std::vector<Bf16> row = Values(hidden, Codes::kBf16, 1.0, rng);
  rows.insert(rows.end(), row.begin(), row.end());
  rows.back() = 0x7fc1;
  return rows;
}

}  // namespace

absl::Status TestCudaFormat(DeviceBackend& device, const WireFormat& format) {
  constexpr std::int64_t kHidden = 304;
  constexpr std::size_t kCount = 5;
  const bool global = format.scale == ScaleKind::kE4m3;
  const CodecSpec spec{.format = format, .global_scale = global ? 600.0F : 1.0F};
  SY_ASSIGN_OR_RETURN(const auto codec, device.MakeCodec(spec));
  const std::vector<Bf16> x = CodecRows(kHidden);
  const RowBytes bytes = RowBytesOf(format, kHidden);
  const auto data_bytes = kCount * static_cast<std::size_t>(bytes.data);
  const auto scale_bytes = kCount * static_cast<std::size_t>(bytes.scales);
  std::vector<std::byte> want(data_bytes + scale_bytes);
  if (format == kBf16Format) {
    std::copy_n(reinterpret_cast<const std::byte*>(x.data()), data_bytes, want.begin());
  } else {
    SY_ASSIGN_OR_RETURN(const auto scalar, ScaledCodec::Create(kScalarCodecKernels, spec));
    std::array<const Bf16*, kCount> rows{};
    for (std::size_t i = 0; i < kCount; ++i) rows[i] = x.data() + i * kHidden;
    scalar->Encode(rows, kHidden, want.data(), want.data() + data_bytes);
  }
  SY_ASSIGN_OR_RETURN(const auto stream, device.MakeStream({}));
  const std::size_t x_bytes = x.size() * sizeof(Bf16);
  SY_ASSIGN_OR_RETURN(const auto rows, device.Allocate(x_bytes, MemoryKind::kDevice));
  SY_ASSIGN_OR_RETURN(const auto encoded, device.Allocate(want.size(), MemoryKind::kDevice));
  std::vector<std::byte> got(want.size(), std::byte{0x5a});
  const CopyPiece in{rows->data(), reinterpret_cast<const std::byte*>(x.data()), x_bytes};
  const CopyPiece back{got.data(), encoded->data(), got.size()};
  const std::array<std::uint32_t, kCount> indices{0, 1, 2, 3, 4};
  SY_RETURN_IF_ERROR(stream->Copy({&in, 1}));
  SY_RETURN_IF_ERROR(stream->Encode({.codec = codec.get(),
                                     .x = reinterpret_cast<const Bf16*>(rows->data()),
                                     .x_stride = kHidden,
                                     .indices = indices,
                                     .hidden = kHidden,
                                     .data = encoded->data(),
                                     .scales = encoded->data() + data_bytes}));
  SY_RETURN_IF_ERROR(stream->Copy({&back, 1}));
  SY_RETURN_IF_ERROR(Finish(*stream));
  if (got == want) return absl::OkStatus();
  return Failed(absl::StrCat("wire format ", WireFormatName(format),
                             " has other bytes than the scalar codec"));
}

absl::Status TestCudaProducts(DeviceBackend& device, DeviceBackend& scalar) {
  const Case cases[] = {
      {"BF16 weights", Codes::kBf16, Scales::kNone},
      {"BF16 weights and scales of outputs", Codes::kBf16, Scales::kOutputs},
      {"BF16 weights and scales of blocks", Codes::kBf16, Scales::kBlocks},
      {"E4M3 weights and scales of outputs", Codes::kE4m3, Scales::kOutputs},
      {"E4M3 weights and scales of groups", Codes::kE4m3, Scales::kGroups},
      {"INT8 weights and scales of outputs", Codes::kInt8, Scales::kOutputs},
      {"INT4 weights and scales of groups", Codes::kInt4, Scales::kGroups},
      {"INT4 weights and scales of outputs", Codes::kInt4, Scales::kOutputs},
      {"NVFP4 weights and scales of outputs", Codes::kE2m1, Scales::kOutputs},
  };
  for (const Case& one : cases) {
    SY_RETURN_IF_ERROR(TestCase(device, scalar, one));
    SY_RETURN_IF_ERROR(TestSameBits(device, one));
  }
  const ActivationSpec groups{ActivationFormat::kFp8Group};
  SY_RETURN_IF_ERROR(
      TestSameBits(device, {"E4M3 weights and rows", Codes::kE4m3, Scales::kBlocks, groups}));
  const Case signed_int4{"INT4 weights and E4M3 rows", Codes::kInt4, Scales::kGroups,
                         ActivationSpec{ActivationFormat::kFp8Static, 0.0123F}, kRoundedDiffMax};
  SY_RETURN_IF_ERROR(TestCase(device, scalar, signed_int4));
  SY_RETURN_IF_ERROR(TestSameBits(device, signed_int4));
  const ActivationSpec integers{ActivationFormat::kInt8Row};
  return TestSameBits(device, {"INT8 weights and rows", Codes::kInt8, Scales::kOutputs, integers});
}

absl::Status TestCudaRounding(DeviceBackend& device, DeviceBackend& scalar,
                              ActivationFormat format) {
  ActivationSpec spec{format};
  if (format == ActivationFormat::kNvfp4) spec.scale = 600.0F;
  if (format == ActivationFormat::kFp8Static) spec.scale = 0.0123F;
  const std::string name = absl::StrCat("rounding ", ActivationFormatName(format));
  const bool integers =
      format == ActivationFormat::kInt8Row || format == ActivationFormat::kInt4Row;
  const Scales scales =
      format == ActivationFormat::kFp8Group || format == ActivationFormat::kFp8GroupPow2
          ? Scales::kBlocks
          : Scales::kOutputs;
  SY_RETURN_IF_ERROR(
      TestCase(device, scalar,
               {absl::StrCat(name, " and codes"), integers ? Codes::kInt8 : Codes::kE4m3, scales,
                spec, kRoundedDiffMax}));
  return TestCase(device, scalar,
                  {absl::StrCat(name, " and BF16 weights"), Codes::kBf16, Scales::kNone, spec,
                   kRoundedDiffMax});
}

}  // namespace switchyard
