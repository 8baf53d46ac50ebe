#include "bench/cuda/prefill_layer.h"

#include <algorithm>
#include <cmath>

#include "tests/cuda/device_kernels.h"
#include "worker/device/cuda/gemm/prefill_packed.h"

namespace switchyard::cuda::bench {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::ExchangeGroup;
using testing::RankTokens;

constexpr std::uint64_t kPatience = 5'000'000'000;  // ns
constexpr int kSms = 132;
constexpr int kFewTokens = 64;

// Tokens [first, first + count).
RankTokens PartOf(const ExchangeShape& shape, const RankTokens& all, int first, int count) {
  const auto cut = [first, count](const auto& from, int width) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first) * width;
    return std::decay_t<decltype(from)>(begin, begin + static_cast<std::ptrdiff_t>(count) * width);
  };
  return {.tokens = count,
          .x = cut(all.x, shape.hidden),
          .ids = cut(all.ids, shape.top_k),
          .weights = cut(all.weights, shape.top_k)};
}

ExchangeShape ShapeOf(const PrefillModel& model, int ranks, int tokens) {
  return {.ranks = ranks,
          .tokens_max = tokens,
          .hidden = static_cast<int>(model.shape.hidden),
          .top_k = model.top_k,
          .experts_of_rank = model.experts / ranks,
          .formats = ExchangeFormat::kFp8};
}

cudaEvent_t MakeEvent() {
  cudaEvent_t event = nullptr;
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  return event;
}

void Record(cudaEvent_t event, cudaStream_t stream) {
  Check(cudaEventRecord(event, stream), "record");
}
void Await(cudaEvent_t event, cudaStream_t stream) {
  Check(cudaStreamWaitEvent(stream, event, 0), "wait");
}

}  // namespace

std::vector<RankTokens> TokensOf(const PrefillModel& model, int ranks, int tokens) {
  std::mt19937_64 random(23);
  std::vector<RankTokens> all;
  for (int r = 0; r < ranks; ++r) {
    all.push_back(testing::RandomTokens(ShapeOf(model, ranks, tokens), tokens, 0.0, random));
  }
  return all;
}

PrefillLayer::PrefillLayer(const PrefillModel& model, const std::vector<RankTokens>& tokens,
                           int parts)
    : model_(model), tokens_(tokens) {
  const auto ranks = static_cast<int>(tokens.size());
  const ExchangeShape shape = ShapeOf(model, ranks, tokens.front().tokens / parts);
  for (int part = 0; part < parts; ++part) {
    groups_.push_back(std::make_unique<ExchangeGroup>(shape, ranks, kPatience));
  }
  for (int r = 0; r < ranks; ++r) MakeRank(r);
  SetTokens(tokens_, shape.tokens_max);
}

PrefillLayer::~PrefillLayer() {
  for (int r = 0; r < ranks(); ++r) {
    groups_.front()->Select(r);
    const Lane& lane = lanes_[At(r)];
    cudaDeviceSynchronize();
    cudaStreamDestroy(lane.exchange);
    cudaStreamDestroy(lane.products);
    for (const cudaEvent_t event : {lane.landed[0], lane.landed[1], lane.made[0], lane.made[1]}) {
      cudaEventDestroy(event);
    }
  }
}

void PrefillLayer::MakeRank(int rank) {
  groups_.front()->Select(rank);
  const FfnShape& shape = model_.shape;
  const int experts = groups_.front()->shape().experts_of_rank;
  auto own = std::make_unique<Experts>();
  for (int i = 0; i < model_.weights; ++i) {
    const auto seed = static_cast<std::uint32_t>(100 + 10 * i + 1000 * rank);
    own->w13.emplace_back(
        testing::WeightSpec{.groups = experts, .n = 2 * shape.intermediate, .k = shape.hidden},
        seed, i == 0);
    own->w2.emplace_back(
        testing::WeightSpec{.groups = experts, .n = shape.hidden, .k = shape.intermediate},
        seed + 5, i == 0);
  }
  experts_.push_back(std::move(own));
  std::vector<Hidden> parts(groups_.size());
  for (Hidden& part : parts) {
    part.rows = DeviceBuffer<std::byte>(slots() * shape.intermediate);
    part.scales = DeviceBuffer<float>(ScaleStride() * (shape.intermediate / 128));
    part.workspace = DeviceBuffer<std::uint32_t>(1);
    part.workspace.Fill(0);
  }
  hidden_.push_back(std::move(parts));
  int least = 0;
  int greatest = 0;
  Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities");
  Lane lane;
  Check(cudaStreamCreateWithPriority(&lane.exchange, cudaStreamNonBlocking, greatest), "stream");
  Check(cudaStreamCreateWithPriority(&lane.products, cudaStreamNonBlocking, least), "stream");
  for (int i = 0; i < 2; ++i) lane.landed[i] = MakeEvent(), lane.made[i] = MakeEvent();
  lanes_.push_back(lane);
  for (const auto& group : groups_) group->SetStream(rank, lane.exchange);
}

void PrefillLayer::SetTokens(const std::vector<RankTokens>& tokens, int cover) {
  for (int r = 0; r < ranks(); ++r) {
    const auto parts = static_cast<int>(groups_.size());
    for (int part = 0; part < parts; ++part) {
      const int count = tokens[At(r)].tokens / parts;
      ExchangeGroup& group = *groups_[At(part)];
      group.SetTokens(r, PartOf(group.shape(), tokens[At(r)], part * count, count), cover);
    }
  }
}

PrefillLayer::Matrix::Matrix(const testing::WeightSpec& spec, std::uint32_t seed, bool keep_plain)
    : weights(spec, seed, keep_plain) {
  std::vector<const std::byte*> codes;
  std::vector<const float*> scales;
  for (int e = 0; e < spec.groups; ++e) {
    codes.push_back(weights.packed().data + e * spec.n * RowBytesOf(spec.type, spec.k));
    scales.push_back(weights.packed().scales + e * (spec.n / 128) * (spec.k / 128));
  }
  of_expert = DeviceBuffer<const std::byte*>(codes);
  scales_of_expert = DeviceBuffer<const float*>(scales);
}

PackedWeights PrefillLayer::Matrix::packed() const {
  PackedWeights packed = weights.packed();
  packed.of_group = of_expert.get();
  packed.scales_of_group = scales_of_expert.get();
  return packed;
}

void PrefillLayer::First(int rank, int part, int layer, int sms, cudaStream_t stream) {
  const ExchangeGroup& group = *groups_[At(part)];
  const GemmRows landed = group.LandedRows(rank);
  const Hidden& hidden = hidden_[At(rank)][At(part)];
  Check(LaunchPrefillHidden(
            {.rows = landed.rows,
             .stride = landed.stride,
             .count = std::int64_t{ranks()} * group.shape().tokens_max,
             .index = landed.row_index,
             .scales = reinterpret_cast<const float*>(landed.rows + landed.scale_offset),
             .scale_stride = landed.stride / 4},
            group.Groups(rank), experts_[At(rank)]->w13[At(layer % model_.weights)].packed(),
            {.rows = hidden.rows.get(),
             .stride = model_.shape.intermediate,
             .scales = hidden.scales.get(),
             .scale_stride = ScaleStride()},
            {.units_taken = hidden.workspace.get(), .sms = sms}, stream),
        "the first product");
}

void PrefillLayer::Second(int rank, int part, int layer, int sms, cudaStream_t stream) {
  const ExchangeGroup& group = *groups_[At(part)];
  const Hidden& hidden = hidden_[At(rank)][At(part)];
  Check(LaunchPrefillAnswers({.rows = hidden.rows.get(),
                              .stride = model_.shape.intermediate,
                              .count = slots(),
                              .scales = hidden.scales.get(),
                              .scale_stride = ScaleStride()},
                             group.Groups(rank),
                             experts_[At(rank)]->w2[At(layer % model_.weights)].packed(),
                             {.out = group.answers(rank), .stride = model_.shape.hidden},
                             {.units_taken = hidden.workspace.get(), .sms = sms}, stream),
        "the second product");
}

void PrefillLayer::RunPart(int rank, int part, int layer, int sms, cudaStream_t stream) {
  groups_.front()->Select(rank);
  First(rank, part, layer, sms, stream);
  Second(rank, part, layer, sms, stream);
}

void PrefillLayer::Products(int rank, int i) { RunPart(rank, 0, i, 0, lanes_[At(rank)].exchange); }

void PrefillLayer::Exchange(int rank) {
  ExchangeGroup& group = *groups_.front();
  group.SetSms(kSms);
  group.Dispatch(rank);
  group.Combine(rank);
}

void PrefillLayer::Serial(int rank, int i) {
  ExchangeGroup& group = *groups_.front();
  group.SetSms(kSms);
  group.Dispatch(rank);
  Products(rank, i);
  group.Combine(rank);
}

void PrefillLayer::InHalves(int rank, int i, int count) {
  const Lane& lane = lanes_[At(rank)];
  const auto dispatch = [&](int part, int sms) {
    groups_[At(part)]->SetSms(sms);
    groups_[At(part)]->Dispatch(rank);
    Record(lane.landed[part], lane.exchange);
  };
  if (i == 0) {
    dispatch(0, kSms);
    dispatch(1, exchange_sms_);
  }
  for (int part = 0; part < 2; ++part) {
    Await(lane.landed[part], lane.products);
    RunPart(rank, part, i, kSms - exchange_sms_, lane.products);
    Record(lane.made[part], lane.products);
  }
  for (int part = 0; part < 2; ++part) {
    const bool last = i == count - 1;
    Await(lane.made[part], lane.exchange);
    groups_[At(part)]->SetSms(last && part == 1 ? kSms : exchange_sms_);
    groups_[At(part)]->Combine(rank);
    if (!last) dispatch(part, exchange_sms_);
  }
}

double PrefillLayer::Error() {
  std::vector<RankTokens> few;
  ExchangeGroup& group = *groups_.front();
  for (const RankTokens& all : tokens_) few.push_back(PartOf(group.shape(), all, 0, kFewTokens));
  SetTokens(few, group.shape().tokens_max);
  // The first launches load kernels, which waits for those that run: none may wait for another
  // rank.
  for (int r = 0; r < ranks(); ++r) group.Dispatch(r);
  group.Synchronize();
  for (int r = 0; r < ranks(); ++r) Products(r, 0);
  group.Synchronize();
  for (int r = 0; r < ranks(); ++r) group.Combine(r);
  group.Synchronize();
  double most = 0;
  for (int r = 0; r < ranks(); ++r) most = std::max(most, ErrorOf(r));
  SetTokens(tokens_, group.shape().tokens_max);
  return most;
}

double PrefillLayer::ErrorOf(int rank) {
  ExchangeGroup& group = *groups_.front();
  group.Select(rank);
  const Experts& own = *experts_[At(rank)];
  const FfnShape& shape = model_.shape;
  const cudaStream_t stream = lanes_[At(rank)].exchange;
  const std::int64_t stride = shape.intermediate + shape.intermediate / 128 * 4;
  const std::int64_t slots = std::int64_t{ranks()} * kFewTokens * model_.top_k;
  const DeviceBuffer<double> gated(slots * 2 * shape.intermediate);
  const DeviceBuffer<std::byte> hidden(slots * stride);
  const DeviceBuffer<double> wanted(slots * shape.hidden);
  DeviceBuffer<testing::RowError> errors(slots);
  errors.Fill(0);
  testing::ReferenceGemm(group.LandedRows(rank), group.Groups(rank), slots,
                         own.w13[0].weights.plain(), gated.get(), stream);
  const testing::HiddenRows view = {hidden.get(), stride, shape.intermediate, shape.intermediate,
                                    128};
  testing::ReferenceSwiglu(gated.get(), slots, view, stream);
  testing::ReferenceSecond(view, group.Groups(rank), slots, own.w2[0].weights.plain(), wanted.get(),
                           stream);
  testing::CompareRows({reinterpret_cast<std::byte*>(group.answers(rank)), shape.hidden * 2, 0},
                       wanted.get(), group.Groups(rank), slots, shape.hidden, errors.get(), stream);
  Check(cudaStreamSynchronize(stream), "reference");
  testing::RowError sum = {0, 0};
  for (const testing::RowError& row : errors.ToHost()) {
    sum = {sum.error + row.error, sum.reference + row.reference};
  }
  return std::sqrt(sum.error / sum.reference);
}

std::vector<std::uint16_t> PrefillLayer::Answers() const {
  std::vector<std::uint16_t> all;
  for (int r = 0; r < ranks(); ++r) {
    for (const auto& group : groups_) {
      const auto part = group->Out(r);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

void PrefillLayer::PoisonAnswers() {
  for (const auto& group : groups_) {
    for (int r = 0; r < ranks(); ++r) group->PoisonOut(r);
  }
}

bool PrefillLayer::faulted() const {
  return std::any_of(groups_.begin(), groups_.end(), [this](const auto& group) {
    for (int r = 0; r < ranks(); ++r) {
      if (group->State(r).fault != 0) return true;
    }
    return false;
  });
}

double PrefillLayer::Operations() const {
  std::size_t rows = 0;
  for (const RankTokens& of_rank : tokens_) rows += of_rank.ids.size();
  const double products = 6.0 * static_cast<double>(model_.shape.hidden) *
                          static_cast<double>(model_.shape.intermediate);
  return static_cast<double>(rows) / ranks() * products / 1979e6;
}

double PrefillLayer::Wire() const {
  const ExchangeShape& shape = groups_.front()->shape();
  std::int64_t most = 0;
  for (int r = 0; r < ranks(); ++r) {
    std::int64_t sent = 0;
    const RankTokens& own = tokens_[At(r)];
    for (int t = 0; t < own.tokens; ++t) {
      unsigned to = 0;
      for (int k = 0; k < shape.top_k; ++k) {
        to |= 1U << (own.ids[At(t * shape.top_k + k)] / shape.experts_of_rank);
      }
      sent += __builtin_popcount(to & ~(1U << r));
    }
    most = std::max(most, sent);
  }
  return static_cast<double>(most) *
         (RowBytesOf(ExchangeFormat::kFp8, shape.hidden) + shape.hidden * 2) / 355e3;
}

}  // namespace switchyard::cuda::bench
