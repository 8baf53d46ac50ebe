#include "worker/device/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cpu/codec/codec_bf16.h"
#include "worker/device/cpu/codec/codec_scaled.h"
#include "worker/device/cpu/kernel/expert_factors.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/kernel/packing.h"
#include "worker/device/cpu/self_test.h"
#include "worker/device/host/aligned_buffer.h"
#include "worker/device/weights_check.h"

namespace switchyard {

// Scratch of a call: a slab for each thread that may take part.
struct CpuScratch final : KernelScratch {
  CpuScratch(const KernelFamily& of, const KernelDims& sizes, AlignedBuffer memory)
      : family(&of), dims(sizes), layout(of.layout(sizes)), slabs(std::move(memory)) {}

  [[nodiscard]] std::byte* Slab(int thread) const {
    return slabs.data() + thread * ScratchBytes(layout, dims);
  }

  const KernelFamily* const family;
  const KernelDims dims;
  const KernelLayout layout;
  const AlignedBuffer slabs;
};

namespace {

constexpr int kThreadsMax = 256;
constexpr std::int64_t kSizeMax = std::int64_t{1} << 20;
// Below this many bytes of weights a second thread costs more than it brings.
constexpr std::int64_t kSharedBytesMin = 384 << 10;
// Pieces for each thread when one expert is split: the last to end keeps the others waiting.
constexpr std::int64_t kPiecesPerThread = 8;

// Groups of 32 have no reader and no codec here.
bool HasKernels(QuantScheme scheme) { return scheme != QuantScheme::kMxfp8; }

struct CpuPackedExpert final : PackedExpert {
  CpuPackedExpert(const KernelFamily& of, const KernelDims& sizes, AlignedBuffer packed)
      : family(&of), dims(sizes), weights(std::move(packed)) {}
  [[nodiscard]] std::int64_t bytes() const override { return weights.bytes() + factors.bytes(); }

  const KernelFamily* const family;
  const KernelDims dims;
  const AlignedBuffer weights;
  ExpertFactors factors;
  ActivationSpec inputs;
  ActivationSpec middle;
};

absl::StatusOr<KernelDims> DimsOf(const MoeShape& shape) {
  if (shape.hidden < 1 || shape.intermediate < 1 || shape.hidden > kSizeMax ||
      shape.intermediate > kSizeMax) {
    return BadShape(shape, absl::StrCat("both must be from 1 to ", kSizeMax));
  }
  return KernelDims{.hidden = shape.hidden, .intermediate = shape.intermediate};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const CpuOptions& options) {
  const CpuFeatures cpu = DetectCpuFeatures();
  const std::string& asked = options.kernel_family;
  if (!asked.empty()) {
    const KernelFamily* family = FindKernelFamily(asked);
    // No silent replacement: a family is named because a pool of workers must agree on every bit.
    if (family == nullptr || !family->usable(cpu)) {
      const std::string have = UsableFamilyNames(cpu);
      return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                       absl::StrCat("no kernel family '", asked, "' on this CPU; it has: ", have),
                       {{"want", asked}, {"have", have}});
    }
  }
  for (const KernelFamily* family : KernelFamilies()) {
    if (!family->usable(cpu) || (!asked.empty() && asked != family->name)) continue;
    SY_ASSIGN_OR_RETURN(auto backend, CreateFrom({.family = family,
                                                  .row_kernels = &ChooseRowKernels(cpu),
                                                  .codec_kernels = &ChooseCodecKernels(cpu),
                                                  .bf16 = std::make_unique<Bf16Codec>(),
                                                  .compute_threads = options.compute_threads,
                                                  .inline_limits = options.inline_limits,
                                                  .log = options.log}));
    // The best family that passes; one that was named is returned in any case, so that its warning
    // is seen.
    if (!asked.empty() || backend->capabilities().Takes(QuantScheme::kNone)) return backend;
  }
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   "no kernel family of this build passes its self-test on this CPU; report the "
                   "log lines that name them");
}

CpuBackend::CpuBackend(CpuParts parts)
    : HostDevice(parts.inline_limits), parts_(std::move(parts)), row_ops_(*parts_.row_kernels) {}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::CreateFrom(CpuParts parts) {
  if (parts.compute_threads < 1 || parts.compute_threads > kThreadsMax) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("compute_threads is ", parts.compute_threads,
                                  "; it must be from 1 to ", kThreadsMax));
  }
  std::unique_ptr<CpuBackend> backend(new CpuBackend(std::move(parts)));
  SY_RETURN_IF_ERROR(backend->Prove());
  SY_ASSIGN_OR_RETURN(backend->pool_, ComputePool::Create(backend->parts_.compute_threads));
  return backend;
}

absl::Status CpuBackend::Prove() {
  const DeviceProfile* profile = FindDeviceProfile("cpu");
  capabilities_.device = DeviceKind::kCpu;
  capabilities_.device_profile = profile->name;
  capabilities_.gdn = GdnFactsOf(*profile);
  capabilities_.kernel_family = parts_.family->name;
  capabilities_.max_top_k = profile->max_top_k;
  // True when `status` is OK; logs what is not, unless it is about this machine's memory.
  const auto passed = [this](const absl::Status& status) {
    if (status.ok()) return true;
    if (parts_.log != nullptr) parts_.log->Warn("%s", std::string(status.message()));
    return false;
  };
  const absl::Status family = TestKernelFamily(*parts_.family);
  // Lack of memory says nothing about the family; the next start may succeed.
  if (family.code() == absl::StatusCode::kResourceExhausted) return family;
  for (const NamedWireFormat& row : WireFormats()) {
    if (!passed(TestFormat(row.format))) continue;
    proven_formats_.push_back(row.format);
    // Capabilities name dtypes; a format that is not the default follows from the plan.
    if (row.format != DefaultWireFormat(row.format.dtype)) continue;
    capabilities_.wire_dtypes.push_back(row.format.dtype);
  }
  for (const ActivationFormat format : AllActivationFormats()) {
    if (format == ActivationFormat::kBf16 || passed(TestRounding(*parts_.codec_kernels, format))) {
      proven_roundings_.push_back(format);
    }
  }
  // After the roundings, of which schemes are made.
  if (passed(family)) ProveSchemes();
  if (!passed(TestRowKernels(*parts_.row_kernels))) row_ops_ = CpuRowOps(kPortableRowKernels);
  return absl::OkStatus();
}

bool CpuBackend::Rounds(ActivationFormat format) const {
  return std::find(proven_roundings_.begin(), proven_roundings_.end(), format) !=
         proven_roundings_.end();
}

// Experts of every scheme are BF16 products between roundings: a scheme is proven when those are.
void CpuBackend::ProveSchemes() {
  for (const QuantSchemeInfo& row : AllQuantSchemes()) {
    const std::span<const ActivationFormat> formats = ActivationFormatsOf(row.scheme);
    const bool rounds = std::all_of(formats.begin(), formats.end(),
                                    [this](ActivationFormat format) { return Rounds(format); });
    if (HasKernels(row.scheme) && rounds) capabilities_.schemes.push_back(row.scheme);
  }
}

absl::Status CpuBackend::TestFormat(const WireFormat& format) const {
  if (format == kBf16Format) return TestCodec(*parts_.bf16);
  return TestRowCodec(*parts_.codec_kernels, format);
}

absl::StatusOr<std::unique_ptr<PackedExpert>> CpuBackend::Pack(const MoeShape& shape,
                                                               const ExpertWeightsView& weights) {
  if (!capabilities_.Takes(QuantScheme::kNone)) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("kernel family ", parts_.family->name,
                                  " failed its self-test here; choose another"),
                     {{"kernel_family", parts_.family->name}});
  }
  SY_ASSIGN_OR_RETURN(const KernelDims dims, DimsOf(shape));
  // Before the packing allocates: a checkpoint error must not look like a lack of memory.
  SY_RETURN_IF_ERROR(CheckWeights(shape, weights));
  for (const ActivationSpec& spec : {weights.inputs, weights.middle}) {
    if (Rounds(spec.format)) continue;
    const std::string name(ActivationFormatName(spec.format));
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("rounding of activations ", name, " is not among those that ",
                                  "passed their self-test on this device"),
                     {{"format", name}});
  }
  SY_ASSIGN_OR_RETURN(AlignedBuffer packed,
                      AlignedBuffer::Allocate(parts_.family->layout(dims).packed_bytes));
  parts_.family->pack(
      dims, {.gate = weights.gate.data(), .up = weights.up.data(), .down = weights.down.data()},
      packed.data());
  auto expert = std::make_unique<CpuPackedExpert>(*parts_.family, dims, std::move(packed));
  expert->inputs = weights.inputs;
  expert->middle = weights.middle;
  SY_ASSIGN_OR_RETURN(expert->factors, ExpertFactors::Pack(dims, weights));
  return expert;
}

absl::StatusOr<std::unique_ptr<KernelScratch>> CpuBackend::MakeScratch(const MoeShape& shape) {
  SY_ASSIGN_OR_RETURN(const KernelDims dims, DimsOf(shape));
  // Rows beyond a block go through the same slab block by block, so their number does not matter.
  const std::int64_t slab = ScratchBytes(parts_.family->layout(dims), dims);
  SY_ASSIGN_OR_RETURN(AlignedBuffer slabs, AlignedBuffer::Allocate(slab * pool_->threads()));
  return std::make_unique<CpuScratch>(*parts_.family, dims, std::move(slabs));
}

KernelRun CpuBackend::RunOf(const ExpertRows& batch, const CpuScratch& scratch, int thread) const {
  const auto& expert = static_cast<const CpuPackedExpert&>(*batch.expert);
  const bool fits = expert.family == scratch.family && expert.dims.hidden == scratch.dims.hidden &&
                    expert.dims.intermediate == scratch.dims.intermediate;
  if (!fits) std::abort();  // Another device's expert or another layer's scratch: our bug.
  return {.family = parts_.family,
          .layout = scratch.layout,
          .dims = scratch.dims,
          .weights = expert.weights.data(),
          .affine = expert.factors.affine(),
          .blocks = expert.factors.blocks(),
          .inputs = expert.inputs,
          .middle = expert.middle,
          .rounding = parts_.codec_kernels,
          .amax = batch.amax,
          .rounded = batch.rounded,
          .rows = batch.rows,
          .out = batch.out,
          .scratch = scratch.Slab(thread)};
}

void CpuBackend::RunExperts(std::span<const ExpertRows> batches, KernelScratch& scratch) {
  RunExpertsUntil(batches, scratch, [] { return false; });
}

std::size_t CpuBackend::RunExpertsUntil(std::span<const ExpertRows> batches, KernelScratch& scratch,
                                        absl::FunctionRef<bool()> stop) {
  const auto& own = static_cast<const CpuScratch&>(scratch);
  if (own.family != parts_.family) std::abort();
  const auto bytes = static_cast<std::int64_t>(batches.size()) * own.layout.packed_bytes;
  // Weights are what takes time: each byte is read once, whatever the number of rows.
  if (pool_->threads() > 1 && bytes >= kSharedBytesMin) return RunShared(batches, own, stop);
  std::size_t count = 0;
  while (count < batches.size()) {
    RunExpert(RunOf(batches[count++], own, 0));
    if (stop()) break;
  }
  return count;
}

// Whole experts to each thread while there are enough of them; those left over are split by
// columns, so that no thread is idle. Neither changes the order of any sum.
std::size_t CpuBackend::RunShared(std::span<const ExpertRows> batches, const CpuScratch& scratch,
                                  absl::FunctionRef<bool()> stop) {
  const auto threads = static_cast<std::size_t>(pool_->threads());
  std::size_t whole = batches.size() / threads * threads;
  for (std::size_t first = 0; first < whole; first += ComputePool::kIndicesMax) {
    const std::size_t count = std::min<std::size_t>(ComputePool::kIndicesMax, whole - first);
    const std::int64_t ran = pool_->RunUntil(
        static_cast<std::int64_t>(count),
        [&](std::int64_t index, int thread) {
          RunExpert(RunOf(batches[first + static_cast<std::size_t>(index)], scratch, thread));
        },
        stop);
    if (static_cast<std::size_t>(ran) < count) return first + static_cast<std::size_t>(ran);
  }
  for (std::size_t at = whole; at < batches.size(); ++at) {
    // Nothing was asked yet where no experts came before: the first one always runs.
    if (at > 0 && stop()) return at;
    RunSplit(RunOf(batches[at], scratch, 0));
  }
  return batches.size();
}

void CpuBackend::RunSplit(const KernelRun& run) {
  const std::int64_t pieces_max =
      std::min<std::int64_t>(kPiecesPerThread * pool_->threads(), ComputePool::kIndicesMax);
  const auto split = [&](std::int64_t panels, const auto& step) {
    const std::int64_t pieces = std::min(panels, pieces_max);
    pool_->Run(pieces, [&](std::int64_t piece, int /*thread*/) {
      step(panels * piece / pieces, panels * (piece + 1) / pieces);
    });
  };
  const auto row_count = static_cast<std::int64_t>(run.rows.size());
  for (std::int64_t first = 0; first < row_count;) {
    ExpertCall call(run, first);
    call.LoadRows();
    split(run.layout.gate_up_panels,
          [&](std::int64_t begin, std::int64_t end) { call.GateUp(begin, end); });
    // On the caller's thread: a scale needs the whole row of h, so all panels must be complete.
    call.RoundMiddle();
    split(run.layout.down_panels,
          [&](std::int64_t begin, std::int64_t end) { call.Down(begin, end); });
    call.Finish();
    first += call.row_count();
  }
}

absl::StatusOr<std::unique_ptr<Codec>> CpuBackend::MakeCodec(const CodecSpec& spec) const {
  if (std::find(proven_formats_.begin(), proven_formats_.end(), spec.format) ==
      proven_formats_.end()) {
    const std::string name(WireFormatName(spec.format));
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("wire format ", name, " is not among those that passed their ",
                                  "self-test on this device; choose another"),
                     {{"format", name}});
  }
  if (spec.format == kBf16Format) return std::make_unique<Bf16Codec>();
  return ScaledCodec::Create(*parts_.codec_kernels, spec);
}

}  // namespace switchyard
