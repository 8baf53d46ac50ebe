#include "worker/device/cpu/self_test.h"

#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/calc_diff.h"
#include "core/rng.h"
#include "worker/device/cpu/expert_run.h"
#include "worker/device/cpu/kernel/expert_factors.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/host/aligned_buffer.h"

namespace switchyard {
namespace {

constexpr double kCalcDiffMax = 1.5e-5;
constexpr std::uint64_t kSeed = 0x5eed;
constexpr std::int64_t kRows = 19;
constexpr std::byte kPoison{0xa5};
constexpr Bf16 kPoisonedBf16 = 0xa5a5;

absl::Status Failed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("self-test: ", what, "; choose another kernel family here"));
}

// Near enough to a normal distribution: eight uniforms, mean 0, variance 1.
float NextNormal(SeededRng& rng) {
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += rng.Uniform() - 0.5;
  return static_cast<float>(sum * std::sqrt(12.0 / 8.0));
}

std::vector<Bf16> NormalBf16(std::int64_t count, double deviation, SeededRng& rng) {
  std::vector<Bf16> values(static_cast<std::size_t>(count));
  for (Bf16& value : values) {
    value = FloatToBf16(NextNormal(rng) * static_cast<float>(deviation));
  }
  return values;
}

struct Golden {
  KernelDims dims;
  std::vector<Bf16> gate;
  std::vector<Bf16> up;
  std::vector<Bf16> down;
  std::vector<Bf16> x;
  std::vector<const Bf16*> rows;
  std::vector<float> scales;  // empty: the values are the weights
  bool groups = false;        // gate's and down's are of groups; else all are of blocks

  [[nodiscard]] ExpertWeightsView view() const {
    ExpertWeightsView view{.gate = gate, .up = up, .down = down};
    if (scales.empty()) return view;
    const auto blocks =
        static_cast<std::size_t>(ScaleBlocks(dims.hidden) * ScaleBlocks(dims.intermediate));
    const std::span<const float> all(scales);
    view.gate_scales = {.blocks = all.first(blocks)};
    view.up_scales = {.channels = all.first(static_cast<std::size_t>(dims.intermediate)),
                      .blocks = all.subspan(1, blocks)};
    view.down_scales = {.tensor = scales[0], .blocks = all.subspan(2, blocks)};
    if (groups) {
      const auto of = [&](std::int64_t outputs, std::int64_t k) {
        return all.first(static_cast<std::size_t>(outputs * ScaleBlocks(k)));
      };
      view.gate_scales = {.groups = of(dims.intermediate, dims.hidden)};
      view.down_scales = {.groups = of(dims.hidden, dims.intermediate)};
    }
    view.down_bias = all.first(static_cast<std::size_t>(dims.hidden));
    return view;
  }
};

enum class Scales { kNone, kBlocks, kGroups };

Golden MakeGolden(const KernelDims& dims, Scales scales) {
  SeededRng rng(kSeed);
  const std::int64_t size = dims.hidden * dims.intermediate;
  const double in_deviation = 1.0 / std::sqrt(static_cast<double>(dims.hidden));
  const double out_deviation = 1.0 / std::sqrt(static_cast<double>(dims.intermediate));
  Golden golden;
  golden.dims = dims;
  golden.gate = NormalBf16(size, 2.0 * in_deviation, rng);
  golden.up = NormalBf16(size, in_deviation, rng);
  golden.down = NormalBf16(size, out_deviation, rng);
  golden.x = NormalBf16(kRows * dims.hidden, 1.0, rng);
  for (std::int64_t row = 0; row < kRows; ++row) {
    golden.rows.push_back(golden.x.data() + row * dims.hidden);
  }
  if (scales == Scales::kNone) return golden;
  golden.groups = scales == Scales::kGroups;
  const std::int64_t count =
      dims.hidden * ScaleBlocks(dims.intermediate) + dims.intermediate * ScaleBlocks(dims.hidden);
  for (std::int64_t i = 0; i < count; ++i) {
    golden.scales.push_back(static_cast<float>(0.25 + 2.0 * rng.Uniform()));
  }
  return golden;
}

// Runs the rows [first, first + count) through `family` in one call.
class FamilyRunner {
 public:
  static absl::StatusOr<FamilyRunner> Create(const KernelFamily& family, const Golden& golden) {
    FamilyRunner runner(family, golden);
    SY_ASSIGN_OR_RETURN(runner.weights_, AlignedBuffer::Allocate(runner.layout_.packed_bytes));
    SY_ASSIGN_OR_RETURN(runner.scratch_,
                        AlignedBuffer::Allocate(ScratchBytes(runner.layout_, golden.dims)));
    family.pack(golden.dims,
                {.gate = golden.gate.data(), .up = golden.up.data(), .down = golden.down.data()},
                runner.weights_.data());
    SY_ASSIGN_OR_RETURN(runner.factors_, ExpertFactors::Pack(golden.dims, golden.view()));
    return runner;
  }

  std::vector<float> Run(std::int64_t first, std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count * golden_->dims.hidden), NAN);
    RunExpert(
        {.family = family_,
         .layout = layout_,
         .dims = golden_->dims,
         .weights = weights_.data(),
         .affine = factors_.affine(),
         .blocks = factors_.blocks(),
         .rows = std::span(golden_->rows)
                     .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
         .out = out.data(),
         .scratch = scratch_.data()});
    return out;
  }

 private:
  FamilyRunner(const KernelFamily& family, const Golden& golden)
      : family_(&family), golden_(&golden), layout_(family.layout(golden.dims)) {}

  const KernelFamily* family_;
  const Golden* golden_;
  KernelLayout layout_;
  AlignedBuffer weights_;
  AlignedBuffer scratch_;
  ExpertFactors factors_;
};

absl::string_view ScalesText(Scales scales) {
  if (scales == Scales::kNone) return "";
  return scales == Scales::kBlocks ? ", block scales" : ", group scales";
}

absl::Status TestFamilyOn(const KernelFamily& family, const KernelDims& dims, Scales scales) {
  const Golden golden = MakeGolden(dims, scales);
  SY_ASSIGN_OR_RETURN(FamilyRunner reference, FamilyRunner::Create(kScalarFamily, golden));
  SY_ASSIGN_OR_RETURN(FamilyRunner tested, FamilyRunner::Create(family, golden));
  const std::vector<float> want = reference.Run(0, kRows);
  const std::vector<float> got = tested.Run(0, kRows);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::int64_t at = row * dims.hidden;
    const std::string where =
        absl::StrCat("family ", family.name, ", hidden ", dims.hidden, ", intermediate ",
                     dims.intermediate, ScalesText(scales), ", row ", row);
    const auto begin = static_cast<std::size_t>(at);
    const auto width = static_cast<std::size_t>(dims.hidden);
    const double diff =
        CalcDiff(std::span(got).subspan(begin, width), std::span(want).subspan(begin, width));
    if (!(diff <= kCalcDiffMax)) {
      return Failed(absl::StrCat(where, ": calc_diff ", diff, " exceeds ", kCalcDiffMax));
    }
    const std::vector<float> alone = tested.Run(row, 1);
    if (std::memcmp(alone.data(), got.data() + at, alone.size() * sizeof(float)) != 0) {
      return Failed(absl::StrCat(where, ": its result depends on the rows beside it"));
    }
  }
  return absl::OkStatus();
}

// Inputs and outputs of every row operation, for one set of row kernels.
struct RowResults {
  std::vector<Bf16> weighted_sum;
  std::vector<float> weighted_sum_bf16;
  std::vector<float> sum_bf16;
  std::vector<Bf16> rounded;
};

RowResults RunRowKernels(const RowKernels& kernels) {
  constexpr std::int64_t kHidden = 75;  // whole vectors and a tail
  constexpr std::int64_t kTerms = 5;
  SeededRng rng(kSeed);
  std::vector<Bf16> bf16 = NormalBf16(kTerms * kHidden, 1.0, rng);
  std::vector<float> fp32;
  for (std::int64_t i = 0; i < kTerms * kHidden; ++i) fp32.push_back(NextNormal(rng));
  std::vector<float> weights;
  std::vector<const Bf16*> bf16_rows;
  std::vector<const float*> fp32_rows;
  for (std::int64_t row = 0; row < kTerms; ++row) {
    weights.push_back(NextNormal(rng));
    bf16_rows.push_back(bf16.data() + row * kHidden);
    fp32_rows.push_back(fp32.data() + row * kHidden);
  }
  RowResults results = {.weighted_sum = std::vector<Bf16>(kHidden),
                        .weighted_sum_bf16 = std::vector<float>(kHidden),
                        .sum_bf16 = std::vector<float>(kHidden),
                        .rounded = std::vector<Bf16>(fp32.size())};
  kernels.weighted_sum(fp32_rows.data(), weights.data(), kTerms, kHidden,
                       results.weighted_sum.data());
  kernels.weighted_sum_bf16(bf16_rows.data(), weights.data(), kTerms, kHidden,
                            results.weighted_sum_bf16.data());
  kernels.sum_bf16(bf16_rows.data(), kTerms, kHidden, results.sum_bf16.data());
  kernels.round_to_bf16(fp32.data(), kTerms * kHidden, results.rounded.data());
  bf16[kHidden - 1] = 0xffc1;
  return results;
}

// The row 448, -448, 1, -0.5, 0.25, 0, 3.5, 100 and what it is in each format; for NVFP4 with a
// global scale of 6. 100 is a tie of E4M3 between 96 and 104.
constexpr std::array<Bf16, 8> kKnownRow{0x43e0, 0xc3e0, 0x3f80, 0xbf00,
                                        0x3e80, 0x0000, 0x4060, 0x42c8};
struct KnownCodes {
  WireFormat format;
  float global_scale;
  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
};
std::vector<KnownCodes> AllKnownCodes() {
  const std::vector<std::uint8_t> fp8 = {0x7e, 0xfe, 0x38, 0xb0, 0x28, 0x00, 0x46, 0x6c};
  return {{kFp8Format, 1, fp8, {0x00, 0x00, 0x80, 0x3f}},
          {kFp8Ue8m0Format, 1, fp8, {0x7f}},
          {kInt8Format, 1, {0x7f, 0x81, 0, 0, 0, 0, 1, 28}, {0x87, 0xc3, 0x61, 0x40}},
          {kNvfp4Format, 6, {0xf7, 0x80, 0x00, 0x30}, {0x7e}}};
}

constexpr float kGlobalScale = 672.0F;  // of a tensor whose largest magnitude is 4
constexpr std::int64_t kCodecHidden = 299;

// Normal, of every magnitude, zeros, and normal with a NaN.
std::vector<std::vector<Bf16>> CodecRows() {
  SeededRng rng(kSeed);
  std::vector<std::vector<Bf16>> rows(3, NormalBf16(kCodecHidden, 1.0, rng));
  for (Bf16& value : rows[1]) value = static_cast<Bf16>(rng.Next() & 0xbfffU);
  rows[2].assign(kCodecHidden, 0);
  rows.push_back(rows[0]);
  rows.back()[200] = 0x7fc1;
  return rows;
}

struct CodecBytes {
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
  std::vector<Bf16> decoded;
  std::vector<Bf16> of_noise;  // what bytes that no encoder wrote decode as
  friend bool operator==(const CodecBytes&, const CodecBytes&) = default;
};

// Encodes and decodes a row with `codec`; each result has a poisoned element after it.
CodecBytes RunRowCodec(const RowCodec& codec, const WireFormat& format, float global_scale,
                       std::span<const Bf16> row) {
  const auto hidden = static_cast<std::int64_t>(row.size());
  const RowBytes bytes = RowBytesOf(format, hidden);
  CodecBytes result = {
      .data = std::vector<std::byte>(static_cast<std::size_t>(bytes.data) + 1, kPoison),
      .scales = std::vector<std::byte>(static_cast<std::size_t>(bytes.scales) + 1, kPoison),
      .decoded = std::vector<Bf16>(row.size() + 1, kPoisonedBf16),
      .of_noise = std::vector<Bf16>(row.size() + 1, kPoisonedBf16)};
  codec.encode(row.data(), hidden, global_scale, result.data.data(), result.scales.data());
  codec.decode(result.data.data(), result.scales.data(), hidden, global_scale,
               result.decoded.data());
  SeededRng rng(kSeed);
  std::vector<std::byte> noise(static_cast<std::size_t>(bytes.total()));
  for (std::byte& byte : noise) byte = static_cast<std::byte>(rng.Next());
  codec.decode(noise.data(), noise.data() + bytes.data, hidden, global_scale,
               result.of_noise.data());
  return result;
}

bool StartsWith(std::span<const std::byte> bytes, const std::vector<std::uint8_t>& want) {
  return bytes.size() == want.size() + 1 && bytes.back() == kPoison &&
         std::memcmp(bytes.data(), want.data(), want.size()) == 0;
}

}  // namespace

absl::Status TestKernelFamily(const KernelFamily& family) {
  constexpr KernelDims kWholePanels{.hidden = 128, .intermediate = 96};
  constexpr KernelDims kPadded{.hidden = 84, .intermediate = 45};
  constexpr KernelDims kPaddedBlocks{.hidden = 165, .intermediate = 138};
  SY_RETURN_IF_ERROR(TestFamilyOn(family, kWholePanels, Scales::kNone));
  SY_RETURN_IF_ERROR(TestFamilyOn(family, kPadded, Scales::kNone));
  SY_RETURN_IF_ERROR(TestFamilyOn(family, kPaddedBlocks, Scales::kBlocks));
  return TestFamilyOn(family, kPaddedBlocks, Scales::kGroups);
}

absl::Status TestRowKernels(const RowKernels& kernels) {
  const RowResults want = RunRowKernels(kPortableRowKernels);
  const RowResults got = RunRowKernels(kernels);
  if (got.weighted_sum != want.weighted_sum) return Failed("WeightedSum differs from std::fma");
  if (got.weighted_sum_bf16 != want.weighted_sum_bf16) {
    return Failed("WeightedSumBf16 differs from std::fma");
  }
  if (got.sum_bf16 != want.sum_bf16) return Failed("SumBf16 differs from plain additions");
  if (got.rounded != want.rounded) return Failed("RoundToBf16 differs from FloatToBf16");
  return absl::OkStatus();
}

absl::Status TestCodec(const HostCodec& codec) {
  constexpr std::int64_t kHidden = 75;
  constexpr std::int64_t kCount = 3;
  SeededRng rng(kSeed);
  const std::vector<Bf16> in = NormalBf16(kCount * (kHidden + 1), 1.0, rng);
  std::vector<const Bf16*> rows;
  for (std::int64_t row = 0; row < kCount; ++row) rows.push_back(in.data() + row * (kHidden + 1));
  const RowBytes bytes = RowBytesOf(codec.format(), kHidden);
  std::vector<std::byte> data(static_cast<std::size_t>(kCount * bytes.data) + 1, kPoison);
  std::vector<std::byte> scales(static_cast<std::size_t>(kCount * bytes.scales) + 1, kPoison);
  std::vector<Bf16> out(kCount * kHidden + 1, kPoisonedBf16);

  codec.Encode(rows, kHidden, data.data(), scales.data());
  codec.Decode(data.data(), scales.data(), kCount, kHidden, out.data());

  if (data.back() != kPoison || scales.back() != kPoison || out.back() != kPoisonedBf16) {
    return Failed("the codec writes beyond its rows");
  }
  for (std::int64_t row = 0; row < kCount; ++row) {
    if (std::memcmp(out.data() + row * kHidden, rows[static_cast<std::size_t>(row)],
                    kHidden * sizeof(Bf16)) != 0) {
      return Failed(absl::StrCat("row ", row, " does not come back from the codec"));
    }
  }
  return absl::OkStatus();
}

absl::Status TestRowCodec(const CodecKernels& kernels, const WireFormat& format) {
  const RowCodec* tested = FindRowCodec(kernels, format);
  const RowCodec* reference = FindRowCodec(kScalarCodecKernels, format);
  const std::string name =
      absl::StrCat(kernels.name, " codec kernels, format ", WireFormatName(format));
  if (tested == nullptr || reference == nullptr) return Failed(absl::StrCat("no ", name));
  for (const KnownCodes& known : AllKnownCodes()) {
    if (known.format != format) continue;
    const CodecBytes got = RunRowCodec(*tested, format, known.global_scale, kKnownRow);
    if (!StartsWith(got.data, known.data) || !StartsWith(got.scales, known.scales)) {
      return Failed(absl::StrCat(name, ": the row with known codes has different ones"));
    }
  }
  const float global_scale = format.scale == ScaleKind::kE4m3 ? kGlobalScale : 1.0F;
  const std::vector<std::vector<Bf16>> rows = CodecRows();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const CodecBytes got = RunRowCodec(*tested, format, global_scale, rows[row]);
    if (got.data.back() != kPoison || got.scales.back() != kPoison ||
        got.decoded.back() != kPoisonedBf16 || got.of_noise.back() != kPoisonedBf16) {
      return Failed(absl::StrCat(name, ", row ", row, ": something beyond the row was written"));
    }
    if (got != RunRowCodec(*reference, format, global_scale, rows[row])) {
      return Failed(absl::StrCat(name, ", row ", row, ": differs from the scalar kernels"));
    }
  }
  return absl::OkStatus();
}

}  // namespace switchyard
