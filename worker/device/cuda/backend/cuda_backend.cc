#include "worker/device/cuda/backend/cuda_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cpu/codec/codec_scaled.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cuda/backend/cuda_codec.h"
#include "worker/device/cuda/backend/cuda_exchange.h"
#include "worker/device/cuda/backend/cuda_self_test.h"
#include "worker/device/cuda/backend/device_check.h"
#include "worker/device/weights_check.h"

namespace switchyard {
namespace {

constexpr std::int64_t kSizeMax = std::int64_t{1} << 20;

// The products of prefill gain little from more (docs/PERFORMANCE.md, Prefill).
constexpr std::uint32_t kPrefillRows = 8192;
constexpr std::int64_t kPrefillPairs = 65536;
constexpr std::int64_t kPrefillScratch = std::int64_t{2} << 30;

// Groups of 32 have no reader and no codec here.
bool HasKernels(QuantScheme scheme) { return scheme != QuantScheme::kMxfp8; }

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options)
    : shared_(options.index, options.log),
      capability_major_(CapabilityMajor(options.index)),
      portable_(options.portable || capability_major_ != kHopper),
      source_bytes_min_(options.source_bytes_min),
      sharing_(std::make_shared<SharingBudget>(options.shared_bytes_max)),
      packers_(&shared_.fault, portable_) {}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(const CudaOptions& options) {
  SY_RETURN_IF_ERROR(CheckDevice(options.index));
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  // The opener of a client may be an engine's thread.
  const KeptContext kept(backend->shared_.contexts);
  SY_RETURN_IF_ERROR(backend->Select());
  SY_ASSIGN_OR_RETURN(backend->shared_.completion,
                      CompletionThread::Create(options.index, options.busy_poll));
  SY_RETURN_IF_ERROR(backend->Prove(options.log));
  return backend;
}

// The runtime's device belongs to the calling thread.
absl::Status CudaBackend::Select() {
  if (shared_.fault.broken()) return shared_.fault.status();
  return shared_.fault.Check(cudaSetDevice(shared_.device), "selecting the device");
}

absl::Status CudaBackend::Prove(Logger* log) {
  const DeviceProfile* profile =
      FindDeviceProfile(capability_major_ == kHopper ? "cuda_sm90" : "cuda_sm100");
  capabilities_.device = DeviceKind::kCuda;
  capabilities_.device_profile = profile->name;
  capabilities_.gdn = GdnFactsOf(*profile);
  capabilities_.kernel_family = absl::StrCat(profile->name, portable_ ? "_portable" : "");
  capabilities_.max_top_k = profile->max_top_k;
  // True when `status` is OK; logs what is not.
  const auto passed = [log](const absl::Status& status) {
    if (status.ok()) return true;
    if (log != nullptr) log->Warn("%s", std::string(status.message()));
    return false;
  };
  // The tests use the device as its callers do, so everything counts as proven meanwhile.
  for (const NamedWireFormat& row : WireFormats()) proven_formats_.push_back(row.format);
  for (const ActivationFormat format : AllActivationFormats()) proven_roundings_.push_back(format);
  std::erase_if(proven_formats_,
                [&](const WireFormat& format) { return !passed(TestCudaFormat(*this, format)); });
  for (const WireFormat& format : proven_formats_) {
    if (format == DefaultWireFormat(format.dtype)) {
      capabilities_.wire_dtypes.push_back(format.dtype);
    }
  }
  SY_ASSIGN_OR_RETURN(const auto scalar, CpuBackend::Create({.kernel_family = "scalar"}));
  const bool multiplies = passed(TestCudaProducts(*this, *scalar));
  std::erase_if(proven_roundings_, [&](ActivationFormat format) {
    return !multiplies || !passed(TestCudaRounding(*this, *scalar, format));
  });
  if (shared_.fault.broken()) return shared_.fault.status();
  // Experts of every scheme are products between roundings: a scheme is proven when those are.
  for (const QuantSchemeInfo& row : AllQuantSchemes()) {
    const std::span<const ActivationFormat> formats = ActivationFormatsOf(row.scheme);
    const bool rounds = std::all_of(formats.begin(), formats.end(),
                                    [this](ActivationFormat format) { return Rounds(format); });
    if (multiplies && HasKernels(row.scheme) && rounds) capabilities_.schemes.push_back(row.scheme);
  }
  return absl::OkStatus();
}

bool CudaBackend::Rounds(ActivationFormat format) const {
  return std::find(proven_roundings_.begin(), proven_roundings_.end(), format) !=
         proven_roundings_.end();
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Allocate(std::size_t bytes, MemoryKind kind) {
  const KeptContext kept(shared_.contexts);
  SY_RETURN_IF_ERROR(Select());
  return AllocateCudaBuffer(bytes, kind, shared_.fault);
}

absl::StatusOr<MemoryKind> CudaBackend::KindAt(const void* address) const {
  if (shared_.fault.broken()) return shared_.fault.status();
  return KindForCuda(address, shared_.device);
}

std::unique_ptr<HostMapping> CudaBackend::MapHost(std::span<std::byte> memory) {
  if (shared_.fault.broken()) return nullptr;
  return MapHostForCuda(memory, shared_.device, shared_.contexts);
}

absl::StatusOr<SharedBuffer> CudaBackend::AllocateShared(std::size_t bytes) {
  if (shared_.fault.broken()) return shared_.fault.status();
  return AllocateCudaShared(bytes, shared_.device, sharing_, shared_.contexts, shared_.fault);
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::OpenShared(absl::string_view key,
                                                                std::size_t bytes) {
  if (shared_.fault.broken()) return shared_.fault.status();
  return OpenCudaShared(key, bytes, shared_.device, shared_.contexts);
}

absl::StatusOr<std::unique_ptr<PackedExpert>> CudaBackend::Pack(const MoeShape& shape,
                                                                const ExpertWeightsView& weights) {
  const KeptContext kept(shared_.contexts);
  SY_RETURN_IF_ERROR(Select());
  if (shape.hidden < 1 || shape.intermediate < 1 || shape.hidden > kSizeMax ||
      shape.intermediate > kSizeMax) {
    return BadShape(shape, absl::StrCat("both must be from 1 to ", kSizeMax));
  }
  SY_RETURN_IF_ERROR(CheckWeights(shape, weights));
  for (const ActivationSpec& spec : {weights.inputs, weights.middle}) {
    if (Rounds(spec.format)) continue;
    const std::string name(ActivationFormatName(spec.format));
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("rounding of activations ", name, " is not among those that ",
                                  "passed their self-test on this device"),
                     {{"format", name}});
  }
  return packers_.Pack(shape, weights);
}

absl::StatusOr<std::unique_ptr<Exchange>> CudaBackend::MakeExchange(const ExchangeSpec& spec,
                                                                    std::int32_t rank) {
  if (portable_) return DeviceBackend::MakeExchange(spec, rank);
  const KeptContext kept(shared_.contexts);
  SY_RETURN_IF_ERROR(Select());
  SY_RETURN_IF_ERROR(MakeCodec({.format = spec.wire}).status());
  return CudaExchange::Create(this, &shared_, spec, rank);
}

absl::StatusOr<std::unique_ptr<ExpertTable>> CudaBackend::MakeTable(
    std::vector<TableEntry> entries) {
  const KeptContext kept(shared_.contexts);
  SY_RETURN_IF_ERROR(Select());
  return CudaTable::Create(std::move(entries), shared_.fault);
}

BatchSize CudaBackend::PrefillBatch(const MoeShape& shape, const BatchSize& usual) const {
  const std::int64_t of_pair = CudaWorkspace::PairBytes(shape);
  return {.rows = std::max(usual.rows, kPrefillRows),
          .pairs = std::max(usual.pairs, std::min(kPrefillPairs, kPrefillScratch / of_pair))};
}

absl::StatusOr<std::unique_ptr<Workspace>> CudaBackend::MakeWorkspace(const MoeShape& shape,
                                                                      std::int64_t pairs_max) {
  const KeptContext kept(shared_.contexts);
  SY_RETURN_IF_ERROR(Select());
  return CudaWorkspace::Create(shape, pairs_max, shared_.fault);
}

absl::StatusOr<std::unique_ptr<Codec>> CudaBackend::MakeCodec(const CodecSpec& spec) const {
  const std::optional<cuda::RowFormat> rows = RowFormatOf(spec.format);
  if (!rows.has_value() || std::find(proven_formats_.begin(), proven_formats_.end(), spec.format) ==
                               proven_formats_.end()) {
    const std::string name(WireFormatName(spec.format));
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("wire format ", name, " is not among those that passed their ",
                                  "self-test on this device; choose another"),
                     {{"format", name}});
  }
  if (spec.format != kBf16Format) {
    // The CPU's codec of the format knows which global scales are usable.
    SY_RETURN_IF_ERROR(ScaledCodec::Create(kScalarCodecKernels, spec).status());
  }
  return std::make_unique<CudaCodec>(spec, *rows);
}

absl::StatusOr<std::unique_ptr<Stream>> CudaBackend::MakeStream(StreamOptions options) {
  const KeptContext kept(shared_.contexts);
  SY_RETURN_IF_ERROR(Select());
  return CudaStream::Create(&shared_, std::move(options));
}

}  // namespace switchyard
