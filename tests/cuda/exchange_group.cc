#include "tests/cuda/exchange_group.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/format/bf16.h"
#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "worker/device/cuda/exchange/heap_poison.h"

namespace switchyard::cuda::testing {
namespace {

float ValueOf(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint16_t Rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// The values that share a scale.
int GroupOf(ExchangeFormat format, int hidden) {
  if (format == ExchangeFormat::kInt8) return hidden;
  return format == ExchangeFormat::kNvfp4 ? 16 : 128;
}

// A finite value of a group whose largest magnitude is `amax`, encoded and decoded.
float DecodedValue(const WireForms& forms, float amax, float value) {
  constexpr float kLeast = 1e-4F;  // of the FP8 codec
  switch (forms.format) {
    case ExchangeFormat::kFp8: {
      const float largest = std::max(amax, kLeast);
      return E4m3ToFloat(FloatToE4m3(value * (kE4m3Max / largest))) * (largest / kE4m3Max);
    }
    case ExchangeFormat::kFp8Pow2: {
      const float scale = std::exp2(std::ceil(std::log2(std::max(amax, kLeast) / kE4m3Max)));
      return E4m3ToFloat(FloatToE4m3(value / scale)) * scale;
    }
    case ExchangeFormat::kInt8:
      return amax == 0 ? 0.0F : std::nearbyint(value / (amax / 127.0F)) * (amax / 127.0F);
    case ExchangeFormat::kNvfp4: {
      const float scale = E4m3ToFloat(FloatToE4m3(forms.global_scale * amax / kE2m1Max));
      if (scale == 0) return 0.0F;
      return E2m1ToFloat(FloatToE2m1(value * (forms.global_scale / scale))) * scale /
             forms.global_scale;
    }
    case ExchangeFormat::kBf16:
      break;
  }
  return value;
}

// What a kernel's BF16 conversion makes of NaN; all other values are Rounded.
std::uint16_t RoundedSum(float value) { return std::isnan(value) ? 0x7fff : Rounded(value); }

}  // namespace

RankTokens RandomTokens(const ExchangeShape& shape, int tokens, double absent,
                        std::mt19937_64& random) {
  RankTokens out;
  out.tokens = tokens;
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> share(0.05F, 1.0F);
  const int experts = ExpertsOf(shape);
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < tokens; ++t) {
    const float size = random() % 7 == 0 ? 40.0F : 1.0F;
    for (int c = 0; c < shape.hidden; ++c) out.x.push_back(Rounded(normal(random) * size));
    for (int k = 0; k < shape.top_k; ++k) {
      const auto at = static_cast<std::size_t>(k % experts);
      std::swap(all[at], all[at + random() % (all.size() - at)]);
      const bool none = share(random) < static_cast<float>(absent) * 0.95F + 0.05F && absent > 0;
      out.ids.push_back(none ? -1 : all[at]);
      out.weights.push_back(share(random));
    }
  }
  return out;
}

std::vector<float> DecodedRow(const WireForms& forms, int hidden, const std::uint16_t* x) {
  const int group = GroupOf(forms.format, hidden);
  std::vector<float> row;
  for (int first = 0; first < hidden; first += group) {
    float amax = 0;
    bool finite = true;
    for (int c = first; c < first + group; ++c) {
      const float value = std::fabs(ValueOf(x[c]));
      finite = finite && std::isfinite(value);
      amax = std::max(amax, value);
    }
    for (int c = first; c < first + group; ++c) {
      if (forms.format == ExchangeFormat::kBf16) {
        row.push_back(ValueOf(x[c]));
      } else if (!finite) {
        row.push_back(std::nanf(""));
      } else {
        row.push_back(DecodedValue(forms, amax, ValueOf(x[c])));
      }
    }
  }
  return row;
}

std::vector<std::uint16_t> ExpectedToken(const ExchangeShape& shape, const WireForms& forms,
                                         const RankTokens& from, int token) {
  const auto t = static_cast<std::size_t>(token);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  const std::vector<float> row = DecodedRow(forms, shape.hidden, from.x.data() + t * hidden);
  std::vector<float> sums(hidden, 0.0F);
  const bool per_expert = shape.unit == ExchangeUnit::kPerExpert;
  for (int rank = 0; rank < (per_expert ? 1 : shape.ranks); ++rank) {
    std::vector<float> part(hidden, 0.0F);
    bool any = false;
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::int32_t id = from.ids[t * top_k + k];
      if (id < 0 || id >= ExpertsOf(shape) || (!per_expert && id / shape.experts_of_rank != rank)) {
        continue;
      }
      any = true;
      const float factor = 1.0F + static_cast<float>(id) / 256.0F;
      for (std::size_t c = 0; c < hidden; ++c) {
        part[c] = std::fma(from.weights[t * top_k + k], ValueOf(Rounded(row[c] * factor)), part[c]);
      }
    }
    if (!any) continue;
    if (per_expert) {
      sums = part;
      continue;
    }
    std::vector<std::uint16_t> answer;
    for (const float sum : part) answer.push_back(RoundedSum(sum));
    if (forms.answers == AnswerFormat::kFp8) {
      const WireForms fp8{.format = ExchangeFormat::kFp8};
      const std::vector<float> decoded = DecodedRow(fp8, shape.hidden, answer.data());
      for (std::size_t c = 0; c < hidden; ++c) answer[c] = Rounded(decoded[c]);
    }
    for (std::size_t c = 0; c < hidden; ++c) sums[c] += ValueOf(answer[c]);
  }
  std::vector<std::uint16_t> out;
  for (const float sum : sums) out.push_back(RoundedSum(sum));
  return out;
}

namespace {

DeviceBuffer<std::byte> Poisoned(std::int64_t bytes) {
  DeviceBuffer<std::byte> memory(bytes);
  Check(PoisonHeap(memory.get(), bytes, nullptr), "heap");
  return memory;
}

}  // namespace

ExchangeGroup::ExchangeGroup(const ExchangeShape& shape, int devices, std::uint64_t timeout_ns)
    : shape_(shape) {
  const ExchangeLayout layout = LayoutOf(shape);
  const std::int64_t tokens = shape.tokens_max;
  const std::int64_t choices = shape.ranks * tokens * shape.top_k;
  for (int r = 0; r < shape.ranks; ++r) {
    auto member = std::make_unique<Member>();
    member->device = r % devices;
    Check(cudaSetDevice(member->device), "device");
    for (int other = 0; other < devices; ++other) {
      if (other == member->device) continue;
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) Check(enabled, "peer access");
      (void)cudaGetLastError();
    }
    Check(cudaStreamCreateWithFlags(&member->own_stream, cudaStreamNonBlocking), "stream");
    member->stream = member->own_stream;
    member->heap = Poisoned(HeapBytes(shape, layout, r));
    if (shape.by_messages) member->outbox = Poisoned(layout.bytes);
    member->state = DeviceBuffer<ExchangeState>(1);
    member->state.Fill(0);
    member->x = DeviceBuffer<std::uint16_t>(tokens * shape.hidden);
    member->ids = DeviceBuffer<std::int32_t>(tokens * shape.top_k);
    member->weights = DeviceBuffer<float>(tokens * shape.top_k);
    member->counts = DeviceBuffer<std::int32_t>(shape.experts_of_rank);
    member->offsets = DeviceBuffer<std::int32_t>(shape.experts_of_rank + 1);
    member->row_index = DeviceBuffer<std::int32_t>(ExchangeSlotsMax(shape) + kIndexBehind);
    member->slots = DeviceBuffer<std::int32_t>(choices);
    member->choice_weights = DeviceBuffer<float>(choices);
    member->answers =
        DeviceBuffer<std::uint16_t>(std::int64_t{ExchangeSlotsMax(shape)} * shape.hidden);
    member->out = DeviceBuffer<std::uint16_t>(tokens * shape.hidden);
    member->sink = DeviceBuffer<std::uint32_t>(1);
    member->barrier = DeviceBuffer<std::uint32_t>(1);
    member->barrier.Fill(0);
    for (DeviceBuffer<std::int32_t>* list :
         {&member->counts, &member->offsets, &member->row_index, &member->slots}) {
      list->Fill(0xee);
    }
    members_.push_back(std::move(member));
  }
  std::vector<std::uint32_t*> barriers;
  for (const auto& member : members_) barriers.push_back(member->barrier.get());
  for (int r = 0; r < shape.ranks; ++r) {
    Member& member = *members_[At(r)];
    Check(cudaSetDevice(member.device), "device");
    member.barriers = DeviceBuffer<std::uint32_t*>(barriers);
    member.rank = {.shape = shape,
                   .layout = layout,
                   .state = member.state.get(),
                   .rank = r,
                   .timeout_ns = timeout_ns,
                   .sms = 132 / ((shape.ranks + devices - 1) / devices)};
    for (int other = 0; other < shape.ranks; ++other) {
      const bool is_own = !shape.by_messages || other == r;
      member.rank.heaps[other] = is_own ? members_[At(other)]->heap.get() : member.outbox.get();
    }
    member.step.format = static_cast<ExchangeFormat>(std::countr_zero(shape.formats.bits));
    member.step.x = member.x.get();
    member.step.ids = member.ids.get();
    member.step.weights = member.weights.get();
    member.step.rows = {.counts = member.counts.get(),
                        .offsets = member.offsets.get(),
                        .row_index = member.row_index.get(),
                        .slots = member.slots.get(),
                        .weights = member.choice_weights.get()};
  }
  Synchronize();
}

ExchangeGroup::~ExchangeGroup() {
  Synchronize();
  for (const auto& member : members_) cudaStreamDestroy(member->own_stream);
}

void ExchangeGroup::Select(int rank) const {
  Check(cudaSetDevice(members_[At(rank)]->device), "device");
}

void ExchangeGroup::SetTokens(int rank, const RankTokens& tokens, int cover) {
  Select(rank);
  Member& member = *members_[At(rank)];
  const auto upload = [](auto* to, const auto& from) {
    Check(cudaMemcpy(to, from.data(), from.size() * sizeof(from[0]), cudaMemcpyHostToDevice),
          "tokens");
  };
  upload(member.x.get(), tokens.x);
  upload(member.ids.get(), tokens.ids);
  upload(member.weights.get(), tokens.weights);
  member.step.tokens = tokens.tokens;
  member.step.cover = cover;
}

void ExchangeGroup::SetForms(const WireForms& forms) {
  for (int r = 0; r < ranks(); ++r) SetFormsOf(r, forms);
}

void ExchangeGroup::SetFormsOf(int rank, const WireForms& forms) {
  ExchangeStep& step = members_[At(rank)]->step;
  step.format = forms.format;
  step.global_scale = forms.global_scale;
  step.answers = forms.answers;
}

void ExchangeGroup::SetLayerOf(int rank, int layer) { members_[At(rank)]->step.layer = layer; }

void ExchangeGroup::SetReport(int rank, ExchangeReport* report) {
  members_[At(rank)]->rank.report = report;
}

void ExchangeGroup::SetStepsMade(std::uint64_t steps) {
  const std::uint64_t parts = steps * kExchangeParts;
  for (int r = 0; r < ranks(); ++r) {
    Select(r);
    ExchangeState* const state = members_[At(r)]->state.get();
    for (std::uint64_t* const kernels : {&state->dispatch_parts, &state->combine_parts}) {
      Check(cudaMemcpy(kernels, &parts, sizeof parts, cudaMemcpyHostToDevice), "steps made");
    }
  }
}

WireForms ExchangeGroup::forms() const {
  const ExchangeStep& step = members_.front()->step;
  return {.format = step.format, .global_scale = step.global_scale, .answers = step.answers};
}

void ExchangeGroup::SetPlaces(const std::vector<std::int32_t>& places) {
  for (int r = 0; r < ranks(); ++r) {
    Select(r);
    Member& member = *members_[At(r)];
    member.places = DeviceBuffer<std::int32_t>(places);
    member.step.places = member.places.get();
  }
}

void ExchangeGroup::SetSms(int sms) {
  for (const auto& member : members_) member->rank.sms = sms;
}

void ExchangeGroup::SetStream(int rank, cudaStream_t stream) {
  members_[At(rank)]->stream = stream;
}

int ExchangeGroup::AddRouting(int rank, const RankTokens& tokens) {
  Select(rank);
  Member& member = *members_[At(rank)];
  member.routed_ids.emplace_back(tokens.ids);
  member.routed_weights.emplace_back(tokens.weights);
  return static_cast<int>(member.routed_ids.size()) - 1;
}

void ExchangeGroup::Route(int rank, int routing) {
  Member& member = *members_[At(rank)];
  member.step.ids = member.routed_ids[At(routing)].get();
  member.step.weights = member.routed_weights[At(routing)].get();
}

void ExchangeGroup::Dispatch(int rank, bool dependent) {
  Select(rank);
  const Member& member = *members_[At(rank)];
  Check(IsNormal(shape_) ? DispatchNormal(member.rank, member.step, member.stream)
                         : DispatchLowLatency(member.rank, member.step, dependent, member.stream),
        "dispatch");
}

void ExchangeGroup::Experts(int rank, bool dependent) {
  Select(rank);
  const Member& member = *members_[At(rank)];
  FakeExperts(member.rank, member.step, member.answers.get(), dependent, member.stream);
}

void ExchangeGroup::Combine(int rank, bool dependent) {
  Select(rank);
  const Member& member = *members_[At(rank)];
  Check(IsNormal(shape_) ? CombineNormal(member.rank, member.step, member.answers.get(),
                                         member.out.get(), member.stream)
                         : CombineLowLatency(member.rank, member.step, member.answers.get(),
                                             member.out.get(), dependent, member.stream),
        "combine");
}

void ExchangeGroup::Touch(int rank, bool dependent) {
  Select(rank);
  const Member& member = *members_[At(rank)];
  TouchRows(member.rank, member.step, member.sink.get(), dependent, member.stream);
}

void ExchangeGroup::Barrier(int rank) {
  Select(rank);
  const Member& member = *members_[At(rank)];
  DeviceBarrier(member.barriers.get(), shape_.ranks, rank, member.stream);
}

void ExchangeGroup::Synchronize() {
  for (int r = 0; r < shape_.ranks; ++r) {
    Select(r);
    Check(cudaDeviceSynchronize(), "synchronize");
  }
}

GemmRows ExchangeGroup::LandedRows(int rank) const {
  const Member& member = *members_[At(rank)];
  return {.rows = member.heap.get() + member.rank.layout.rows,
          .stride = member.rank.layout.row_stride,
          .scale_offset = member.step.format == ExchangeFormat::kFp8 ? shape_.hidden : 0,
          .row_index = member.row_index.get()};
}

GemmGroups ExchangeGroup::Groups(int rank) const {
  const Member& member = *members_[At(rank)];
  return {.counts = member.counts.get(),
          .offsets = member.offsets.get(),
          .slots_per_group = 0,
          .groups = shape_.experts_of_rank};
}

ExchangeState ExchangeGroup::State(int rank) const {
  Select(rank);
  return members_[At(rank)]->state.ToHost()[0];
}

std::vector<std::uint16_t> ExchangeGroup::Out(int rank) const {
  Select(rank);
  return members_[At(rank)]->out.ToHost();
}

void ExchangeGroup::PoisonOut(int rank) {
  Select(rank);
  members_[At(rank)]->out.Fill(0xee);
}

std::string ExchangeGroup::WrongLists(int rank, const std::vector<RankTokens>& of_ranks) const {
  Select(rank);
  const Member& member = *members_[At(rank)];
  const auto counts = member.counts.ToHost();
  const auto offsets = member.offsets.ToHost();
  const auto row_index = member.row_index.ToHost();
  const auto slots = member.slots.ToHost();
  const auto weights = member.choice_weights.ToHost();
  const std::uint64_t dispatches = State(rank).dispatch_parts / kExchangeParts;
  const auto buffers = static_cast<std::uint64_t>(BuffersOf(shape_));
  const int buffer = static_cast<int>((dispatches + buffers - 1) % buffers);
  std::vector<std::int32_t> wanted(At(shape_.experts_of_rank), 0);
  std::vector<bool> used(row_index.size(), false);
  for (int source = 0; source < shape_.ranks; ++source) {
    const RankTokens& from = of_ranks[At(source)];
    for (int t = 0; t < from.tokens; ++t) {
      for (int k = 0; k < shape_.top_k; ++k) {
        const std::int32_t local =
            from.ids[At(t * shape_.top_k + k)] - rank * shape_.experts_of_rank;
        const std::size_t at = At((source * shape_.tokens_max + t) * shape_.top_k + k);
        const std::int32_t slot = slots[at];
        const std::string where = "source " + std::to_string(source) + ", token " +
                                  std::to_string(t) + ", choice " + std::to_string(k);
        if (local < 0 || local >= shape_.experts_of_rank) {
          if (slot != -1) return where + " is not here, and has slot " + std::to_string(slot);
          continue;
        }
        ++wanted[At(local)];
        const std::int32_t first = offsets[At(local)];
        if (slot < first || slot >= first + counts[At(local)]) return where + ": slot";
        if (used[At(slot)]) return where + ": a slot twice";
        used[At(slot)] = true;
        if (weights[at] != from.weights[At(t * shape_.top_k + k)]) return where + ": weight";
        if (row_index[At(slot)] != ExchangeLayout::Place(shape_, buffer, source, t)) {
          return where + ": row";
        }
      }
    }
  }
  return counts == wanted ? "" : "counts";
}

}  // namespace switchyard::cuda::testing
