#include "worker/device/cuda/backend/cuda_exchange.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"
#include "worker/device/cuda/backend/cuda_codec.h"
#include "worker/device/cuda/backend/expert_products.h"
#include "worker/device/cuda/backend/landed_products.h"
#include "worker/device/cuda/exchange/low_latency.h"
#include "worker/device/cuda/exchange/messages.h"
#include "worker/device/cuda/exchange/normal.h"

namespace switchyard {
namespace {

static_assert(kCudaGroupLimits.tokens_max == cuda::kExchangeTokensMax &&
              kCudaGroupLimits.normal_tokens_max == cuda::kNormalTokensMax &&
              kCudaGroupLimits.ranks_max == cuda::kExchangeRanksMax &&
              kCudaGroupLimits.experts_max == cuda::kExchangeExpertsMax &&
              kCudaGroupLimits.top_k_max == cuda::kExchangeTopKMax &&
              kCudaGroupLimits.hidden_max == cuda::kExchangeHiddenMax &&
              kCudaGroupLimits.pairs_max == cuda::kExchangePairsMax &&
              kCudaGroupLimits.normal_pairs_max == cuda::kNormalPairsMax &&
              kCudaGroupLimits.fp8_sums_tokens_min == cuda::kExchangeTokensMax + 1);

// Experts run over so many pairs at a time, which bounds the memory for what is between their
// products; few steps have more.
constexpr int kPassPairsMin = cuda::kExchangePairsMax;
constexpr int kPassPairsMax = 65536;

absl::Status BadGroup(absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                   absl::StrFormat("exchange between GPUs: %s", why));
}

// As rows of the format travel.
cuda::ExchangeFormat FormatOf(cuda::RowFormat rows) {
  switch (rows) {
    case cuda::RowFormat::kBf16:
      return cuda::ExchangeFormat::kBf16;
    case cuda::RowFormat::kFp8:
      return cuda::ExchangeFormat::kFp8;
    case cuda::RowFormat::kFp8Ue8m0:
      return cuda::ExchangeFormat::kFp8Pow2;
    case cuda::RowFormat::kInt8:
      return cuda::ExchangeFormat::kInt8;
    case cuda::RowFormat::kNvfp4:
      return cuda::ExchangeFormat::kNvfp4;
  }
  return cuda::ExchangeFormat::kBf16;
}
cuda::ExchangeFormat FormatOf(const Codec* codec) {
  return codec == nullptr ? cuda::ExchangeFormat::kBf16 : FormatOf(AsCudaCodec(*codec).rows());
}

// Those whose rows are not larger than those of the group's format, as the seam says.
cuda::ExchangeFormatSet FormatsUpTo(const ExchangeSpec& spec) {
  const auto most = RowBytesOf(spec.wire, spec.shape.hidden).total();
  cuda::ExchangeFormatSet formats;
  for (const NamedWireFormat& row : WireFormats()) {
    const std::optional<cuda::RowFormat> rows = RowFormatOf(row.format);
    if (!rows.has_value() || RowBytesOf(row.format, spec.shape.hidden).total() > most) continue;
    formats.Add(FormatOf(*rows));
  }
  return formats;
}

absl::StatusOr<cuda::ExchangeShape> ShapeOf(const ExchangeSpec& spec) {
  if (spec.expert_ranks < 1 || spec.expert_ranks > spec.ranks ||
      spec.shape.experts % spec.expert_ranks != 0) {
    return BadGroup(absl::StrFormat("%d experts do not divide by %d of %d ranks",
                                    spec.shape.experts, spec.expert_ranks, spec.ranks));
  }
  if (spec.by_messages && spec.unit != CombineUnit::kPerWorker) {
    return BadGroup("answers travel per worker in messages (combine_unit per_worker)");
  }
  return cuda::ExchangeShape{.ranks = spec.ranks,
                             .tokens_max = spec.tokens_max,
                             .hidden = spec.shape.hidden,
                             .top_k = spec.shape.top_k,
                             .experts_of_rank = spec.experts_of_rank(),
                             .expert_ranks = spec.expert_ranks,
                             .formats = FormatsUpTo(spec),
                             .unit = spec.unit == CombineUnit::kPerWorker
                                         ? cuda::ExchangeUnit::kPerWorker
                                         : cuda::ExchangeUnit::kPerExpert,
                             .by_messages = spec.by_messages};
}

int PassPairs(const cuda::ExchangeShape& shape) {
  const int twice_even = 2 * shape.tokens_max * shape.top_k;
  return std::min(cuda::ExchangeSlotsMax(shape),
                  std::clamp(twice_even, kPassPairsMin, kPassPairsMax));
}

std::size_t Lines(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaExchange>> CudaExchange::Create(DeviceBackend* device,
                                                                   CudaShared* shared,
                                                                   const ExchangeSpec& spec,
                                                                   std::int32_t rank) {
  SY_ASSIGN_OR_RETURN(const cuda::ExchangeShape shape, ShapeOf(spec));
  std::unique_ptr<CudaExchange> exchange(new CudaExchange(shared, spec));
  SY_ASSIGN_OR_RETURN(exchange->member_, ExchangeMember::Create(device, shape, rank));
  // A rank without experts has no answers to send; combine takes an address all the same.
  const auto slots =
      static_cast<std::size_t>(rank < spec.expert_ranks ? exchange->member_->slots_max() : 1);
  SY_ASSIGN_OR_RETURN(
      exchange->answers_,
      device->Allocate(slots * static_cast<std::size_t>(spec.shape.hidden) * sizeof(Bf16),
                       MemoryKind::kDevice));
  if (rank < spec.expert_ranks) SY_RETURN_IF_ERROR(exchange->AllocateExperts(device));
  // Last, because an id of NCCL's keeps a thread and a port until all ranks have come.
  if (spec.by_messages) {
    SY_ASSIGN_OR_RETURN(exchange->messages_,
                        MessageCarrier::Create(spec.ranks, rank, shared->device));
  }
  return exchange;
}

absl::Status CudaExchange::AllocateExperts(DeviceBackend* device) {
  pass_pairs_ = PassPairs(member_->rank().shape);
  const auto pairs = static_cast<std::size_t>(pass_pairs_);
  SY_ASSIGN_OR_RETURN(workspace_, CudaWorkspace::Create(spec_.shape, pairs, shared_->fault));
  const std::size_t rows = Lines(pairs * sizeof(cuda::PassRow));
  const std::size_t terms = Lines(pairs * sizeof(cuda::PairTerm));
  const std::size_t experts =
      static_cast<std::size_t>(spec_.experts_of_rank()) * sizeof(std::int32_t);
  const std::size_t counts = Lines(cuda::kRoutes * experts);
  SY_ASSIGN_OR_RETURN(pair_memory_,
                      device->Allocate(rows + terms + counts + experts, MemoryKind::kDevice));
  std::byte* const at = pair_memory_->data();
  pairs_ = {.rows = reinterpret_cast<cuda::PassRow*>(at),
            .terms = reinterpret_cast<cuda::PairTerm*>(at + rows),
            .counts = reinterpret_cast<std::int32_t*>(at + rows + terms),
            .offsets = reinterpret_cast<std::int32_t*>(at + rows + terms + counts)};
  return absl::OkStatus();
}

CudaExchange::~CudaExchange() {
  if (messages_ == nullptr) return;
  const KeptContext kept(shared_->contexts);
  (void)cudaSetDevice(shared_->device);
  messages_.reset();
}

absl::Status CudaExchange::Join(std::span<const std::string> keys, Duration patience) {
  SY_RETURN_IF_ERROR(member_->Join(keys, patience));
  if (messages_ == nullptr) return absl::OkStatus();
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(shared_->fault.Check(cudaSetDevice(shared_->device), "selecting the device"));
  return messages_->Join(keys, patience, &member_->report());
}

void CudaExchange::Lose(std::int32_t rank) {
  if (messages_ == nullptr) return member_->Lose(rank);
  if (rank >= 0 && rank < spec_.ranks) messages_->Lose(rank);
}

absl::Status CudaExchange::Fault() const {
  return messages_ == nullptr ? member_->Fault() : messages_->Explain(member_->Fault());
}

absl::Status CudaExchange::CheckCodecs(const StepCodecs& codecs) const {
  const cuda::ExchangeShape& shape = member_->rank().shape;
  const auto name = [](const Codec* codec) {
    return WireFormatName(codec == nullptr ? kBf16Format : codec->format());
  };
  if (!shape.formats.Has(FormatOf(codecs.rows))) {
    return BadGroup(
        absl::StrFormat("rows of %s are larger than those of %s, which the group is for",
                        name(codecs.rows), WireFormatName(spec_.wire)));
  }
  if (codecs.sums == nullptr) return absl::OkStatus();
  if (FormatOf(codecs.sums) == cuda::ExchangeFormat::kFp8 && IsNormal(shape)) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrFormat("exchange between GPUs: sums come back as bf16, and as fp8 in groups of more "
                      "than %d tokens of a rank; not as %s in a group for %d",
                      cuda::kExchangeTokensMax, name(codecs.sums), spec_.tokens_max));
}

absl::Status CudaExchange::Check(const ExchangeStep& step) const {
  if (step.cover < 1 || step.cover > spec_.tokens_max || step.tokens < 0 ||
      step.tokens > step.cover) {
    return BadGroup(absl::StrFormat("a step of %d tokens that covers %d, in a group for up to %d",
                                    step.tokens, step.cover, spec_.tokens_max));
  }
  SY_RETURN_IF_ERROR(CheckCodecs(step.codecs));
  if (!has_experts()) return absl::OkStatus();
  const auto* const table = static_cast<const CudaTable*>(step.experts);
  const std::int32_t slots = table == nullptr ? 0 : table->slots();
  if (slots != spec_.experts_of_rank()) {
    return BadGroup(absl::StrFormat("a step with %d experts of this rank, which has %d", slots,
                                    spec_.experts_of_rank()));
  }
  for (std::int32_t s = 0; s < slots; ++s) {
    if (!table->expert(static_cast<std::size_t>(s)).Fits(spec_.shape)) {
      return BadGroup(absl::StrFormat("the expert of slot %d has another shape", s));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaExchange::Step(Stream* stream, const ExchangeStep& step) {
  SY_RETURN_IF_ERROR(Check(step));
  SY_RETURN_IF_ERROR(member_->CountSteps());
  return static_cast<CudaStream*>(stream)->Enqueue([this, &step](cudaStream_t raw) {
    return messages_ == nullptr ? Enqueue(step, raw) : EnqueueByMessages(step, raw);
  });
}

absl::Status CudaExchange::Record(void* capturing, const ExchangeStep& step) {
  SY_RETURN_IF_ERROR(Check(step));
  if (messages_ != nullptr) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "exchange between GPUs: steps by messages cannot be captured into a graph; "
                     "make them on a stream, or use a group whose GPUs write into each other's "
                     "memory");
  }
  const KeptContext kept(shared_->contexts);
  if (shared_->fault.broken()) return shared_->fault.status();
  SY_RETURN_IF_ERROR(shared_->fault.Check(cudaSetDevice(shared_->device), "selecting the device"));
  auto* const stream = static_cast<cudaStream_t>(capturing);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(stream, &capture);
  if (asked != cudaSuccess || capture != cudaStreamCaptureStatusActive) {
    (void)cudaGetLastError();
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                     "the stream is not being captured into a graph; add steps to a graph between "
                     "the begin and the end of a capture",
                     {{"field", "stream"}});
  }
  return Enqueue(step, stream);
}

cuda::ExchangeStep CudaExchange::StepOfKernels(const ExchangeStep& step) const {
  return {
      .cover = step.cover,
      .tokens = step.tokens,
      .layer = step.layer.value,
      .format = FormatOf(step.codecs.rows),
      .global_scale = step.codecs.rows == nullptr ? 1.0F : step.codecs.rows->global_scale(),
      .answers = step.codecs.sums == nullptr ? cuda::AnswerFormat::kBf16 : cuda::AnswerFormat::kFp8,
      .x = reinterpret_cast<const std::uint16_t*>(step.x),
      .ids = step.ids,
      .weights = step.weights,
      .places = step.places,
      .rows = member_->rows()};
}

void CudaExchange::Carry(const cuda::Messages& messages, cudaStream_t stream) {
  messages_->Carry(messages, member_->outbox(), member_->heap(), stream);
}

absl::Status CudaExchange::EnqueueByMessages(const ExchangeStep& step, cudaStream_t stream) {
  const cuda::ExchangeStep of_kernels = StepOfKernels(step);
  CudaFault& fault = shared_->fault;
  const cuda::ExchangeRank& rank = member_->rank();
  SY_RETURN_IF_ERROR(
      fault.Check(WriteRowMessages(rank, of_kernels, stream), "writing messages of rows"));
  Carry(cuda::RowMessages(rank, step.cover), stream);
  SY_RETURN_IF_ERROR(fault.Check(SealRowMessages(rank, of_kernels, stream), "sealing them"));
  Carry(cuda::SealMessages(rank, step.cover), stream);
  SY_RETURN_IF_ERROR(
      fault.Check(ListRowMessages(rank, of_kernels, stream), "reading messages of rows"));
  if (has_experts()) SY_RETURN_IF_ERROR(RunExperts(step, of_kernels, stream));
  const auto* const answers = reinterpret_cast<const std::uint16_t*>(answers_->data());
  SY_RETURN_IF_ERROR(fault.Check(WriteAnswerMessages(rank, of_kernels, answers, stream),
                                 "writing messages of answers"));
  Carry(cuda::AnswerMessages(rank, step.cover), stream);
  SY_RETURN_IF_ERROR(fault.Check(SealAnswerMessages(rank, of_kernels, stream), "sealing them"));
  Carry(cuda::SealMessages(rank, step.cover), stream);
  const auto add = [&](auto* y) { return AddAnswerMessages(rank, of_kernels, y, stream); };
  return fault.Check(step.y_dtype == OutputDtype::kF32 ? add(static_cast<float*>(step.y))
                                                       : add(static_cast<std::uint16_t*>(step.y)),
                     "adding up answers");
}

absl::Status CudaExchange::Enqueue(const ExchangeStep& step, cudaStream_t stream) {
  const cuda::ExchangeStep of_kernels = StepOfKernels(step);
  CudaFault& fault = shared_->fault;
  const cuda::ExchangeRank& rank = member_->rank();
  const bool normal = IsNormal(rank.shape);
  SY_RETURN_IF_ERROR(fault.Check(normal ? DispatchNormal(rank, of_kernels, stream)
                                        : DispatchLowLatency(rank, of_kernels, false, stream),
                                 "dispatching rows"));
  if (has_experts()) {
    SY_RETURN_IF_ERROR(RunExperts(step, of_kernels, stream));
  }
  const auto* const answers = reinterpret_cast<const std::uint16_t*>(answers_->data());
  const auto combine = [&](auto* y) {
    return normal ? CombineNormal(rank, of_kernels, answers, y, stream)
                  : CombineLowLatency(rank, of_kernels, answers, y, false, stream);
  };
  return fault.Check(step.y_dtype == OutputDtype::kF32
                         ? combine(static_cast<float*>(step.y))
                         : combine(static_cast<std::uint16_t*>(step.y)),
                     "combining answers");
}

absl::Status CudaExchange::RunExperts(const ExchangeStep& step,
                                      const cuda::ExchangeStep& of_kernels, cudaStream_t stream) {
  const cuda::ExchangeRank& rank = member_->rank();
  LandedProducts landed(static_cast<const CudaTable&>(*step.experts), *workspace_, stream,
                        &shared_->fault);
  if (landed.Serves(rank, of_kernels, ExpectedRowsPerExpert(spec_, step.cover))) {
    return landed.Run(rank, of_kernels, reinterpret_cast<std::uint16_t*>(answers_->data()));
  }
  const int all = cuda::LandedPairsMax(rank.shape, step.cover);
  for (int first = 0; first < all; first += pass_pairs_) {
    const cuda::PairWindow window{.first = first, .count = std::min(pass_pairs_, all - first)};
    SY_RETURN_IF_ERROR(RunPass(step, of_kernels, window, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaExchange::RunPass(const ExchangeStep& step, const cuda::ExchangeStep& of_kernels,
                                   const cuda::PairWindow& window, cudaStream_t stream) {
  const auto& table = static_cast<const CudaTable&>(*step.experts);
  const std::int32_t experts = table.slots();
  SY_RETURN_IF_ERROR(shared_->fault.Check(
      ListLandedPairs(member_->rank(), of_kernels, window, table.facts(),
                      reinterpret_cast<std::uint16_t*>(answers_->data()), pairs_, stream),
      "listing the rows of a step"));
  ExpertProducts products(table, *workspace_, stream, &shared_->fault);
  const auto of_expert = static_cast<std::int32_t>(ExpectedRowsPerExpert(spec_, step.cover));
  const auto busiest = static_cast<std::int32_t>(of_expert + 3 * std::sqrt(of_expert));
  for (std::int32_t s = 0; s < experts; ++s) {
    products.Expect(table.expert(static_cast<std::size_t>(s)).facts().route, of_expert, busiest);
  }
  products.Choose(false);
  const GroupedPairs pairs{.list = {.rows = pairs_.rows,
                                    .terms = pairs_.terms,
                                    .experts = table.facts(),
                                    .amax = nullptr,
                                    .count = window.count,
                                    .width = 1},
                           .counts = pairs_.counts,
                           .offsets = pairs_.offsets};
  SY_RETURN_IF_ERROR(products.Multiply(pairs));
  return products.Answer(pairs.list, false, false, nullptr);
}

}  // namespace switchyard
