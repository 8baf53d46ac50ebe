// Ranks of a group that exchanges rows, for tests in one process and for ranks in processes of
// their own: experts and tokens that follow from numbers, and the answers as the seam defines them.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/format/bf16.h"
#include "core/format/wire_format.h"
#include "core/rng.h"
#include "tests/testing/random_tensors.h"
#include "worker/device/device_backend.h"
#include "worker/device/host/host_codec.h"

namespace switchyard::testing {

// The experts [begin, end) as this device packs them.
inline std::unique_ptr<ExpertTable> ExpertsOf(DeviceBackend* device, const MoeShape& shape,
                                              std::int32_t begin, std::int32_t end) {
  std::vector<TableEntry> entries;
  for (std::int32_t e = begin; e < end; ++e) {
    const RandomExpert raw(shape, static_cast<std::uint64_t>(e) + 1);
    entries.push_back({ExpertId{e}, *device->Pack(shape, raw.view())});
  }
  return *device->MakeTable(std::move(entries));
}

// One rank's tokens of one step.
struct ExchangeTokens {
  std::int32_t count = 0;
  std::vector<Bf16> x{};
  std::vector<std::int32_t> ids{};
  std::vector<float> weights{};
};

// Ids also of experts that do not exist, and the same one twice.
inline ExchangeTokens RandomTokens(const ExchangeSpec& spec, std::int32_t count, Rng& rng) {
  const MoeShape& shape = spec.shape;
  ExchangeTokens tokens{.count = count};
  const auto rows = static_cast<std::size_t>(count);
  tokens.x = GaussianBf16(rows * static_cast<std::size_t>(shape.hidden), 1.0, rng);
  const std::size_t choices = rows * static_cast<std::size_t>(shape.top_k);
  tokens.weights = GaussianFloats(choices, 0.5, rng);
  const auto experts = static_cast<std::uint64_t>(shape.experts);
  for (std::size_t i = 0; i < choices; ++i) {
    tokens.ids.push_back(static_cast<std::int32_t>(rng.Below(experts + 2)) - 1);
  }
  if (count > 1) tokens.ids[0] = INT32_MIN;
  return tokens;
}

// Computes what a group answers, a token at a time: each expert's row by a run of its own, and the
// sums by std::fma.
class ExchangeOracle {
 public:
  // `device` outlives the oracle.
  ExchangeOracle(DeviceBackend* device, const ExchangeSpec& spec)
      : spec_(spec),
        experts_(ExpertsOf(device, spec.shape, 0, spec.shape.experts)),
        workspace_(*device->MakeWorkspace(spec.shape, spec.shape.top_k)),
        stream_(*device->MakeStream({})),
        event_(stream_->MakeEvent()) {
    if (spec.wire != kBf16Format) codec_ = *device->MakeCodec({.format = spec.wire});
  }
  // Of the next answers: another codec of rows, null for BF16; one of sums.
  void SetCodecs(std::unique_ptr<Codec> rows, std::unique_ptr<Codec> sums) {
    codec_ = std::move(rows);
    sums_ = std::move(sums);
  }

  std::vector<Bf16> Answer(const ExchangeTokens& tokens) {
    const auto hidden = static_cast<std::size_t>(spec_.shape.hidden);
    const auto top_k = static_cast<std::size_t>(spec_.shape.top_k);
    std::vector<Bf16> y(tokens.x.size());
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens.count); ++t) {
      std::vector<float> sum(hidden, 0.0F);
      for (std::int32_t rank = 0; rank < spec_.expert_ranks; ++rank) {
        const bool per_worker = spec_.unit == CombineUnit::kPerWorker;
        std::vector<float> of_rank(hidden, 0.0F);
        // kPerExpert knows no ranks: all choices are added at the first turn.
        for (std::size_t k = 0; k < top_k; ++k) {
          const std::int32_t id = tokens.ids[t * top_k + k];
          if (id < 0 || id >= spec_.shape.experts) continue;
          if (per_worker && id / spec_.experts_of_rank() != rank) continue;
          const std::vector<Bf16> row = ExpertRow(tokens.x.data() + t * hidden, id);
          const float weight = tokens.weights[t * top_k + k];
          for (std::size_t i = 0; i < hidden; ++i) {
            of_rank[i] = std::fma(weight, Bf16ToFloat(row[i]), of_rank[i]);
          }
        }
        if (!per_worker) {
          sum = of_rank;
          break;
        }
        const std::vector<Bf16> answer = Sent(of_rank);
        for (std::size_t i = 0; i < hidden; ++i) sum[i] += Bf16ToFloat(answer[i]);
      }
      for (std::size_t i = 0; i < hidden; ++i) y[t * hidden + i] = FloatToBf16(sum[i]);
    }
    return y;
  }

 private:
  // A rank's sum as it arrives. Ranks without experts of the token send nothing; zeros add nothing.
  std::vector<Bf16> Sent(const std::vector<float>& sum) {
    std::vector<Bf16> row;
    for (const float value : sum) row.push_back(FloatToBf16(value));
    if (sums_ == nullptr) return row;
    const auto hidden = static_cast<std::int64_t>(row.size());
    const RowBytes bytes = RowBytesOf(sums_->format(), hidden);
    std::vector<std::byte> sent(static_cast<std::size_t>(bytes.total()));
    const auto& codec = static_cast<const HostCodec&>(*sums_);
    const Bf16* const from = row.data();
    codec.Encode({&from, 1}, hidden, sent.data(), sent.data() + bytes.data);
    codec.Decode(sent.data(), sent.data() + bytes.data, 1, hidden, row.data());
    return row;
  }
  std::vector<Bf16> ExpertRow(const Bf16* x, std::int32_t expert) {
    const RowBytes bytes =
        RowBytesOf(codec_ == nullptr ? kBf16Format : codec_->format(), spec_.shape.hidden);
    std::vector<std::byte> row(static_cast<std::size_t>(bytes.total()));
    ExpertInput input{.codec = codec_.get(),
                      .rows = reinterpret_cast<const std::byte*>(x),
                      .count = 1,
                      .slots = &expert};
    if (codec_ != nullptr) {
      const std::uint32_t first = 0;
      (void)stream_->Encode({.codec = codec_.get(),
                             .x = x,
                             .x_stride = spec_.shape.hidden,
                             .indices = {&first, 1},
                             .hidden = spec_.shape.hidden,
                             .data = row.data(),
                             .scales = row.data() + bytes.data});
      input.rows = row.data();
      input.scales = row.data() + bytes.data;
    }
    std::vector<Bf16> out(static_cast<std::size_t>(spec_.shape.hidden));
    input.out = out.data();
    (void)stream_->Run(
        {.experts = experts_.get(), .workspace = workspace_.get(), .inputs = {&input, 1}});
    (void)stream_->Record(event_.get());
    (void)event_->Wait(std::chrono::seconds(60));
    return out;
  }

  const ExchangeSpec spec_;
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<Codec> sums_;
  const std::unique_ptr<ExpertTable> experts_;
  const std::unique_ptr<Workspace> workspace_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<DeviceEvent> event_;
};

// One rank with a stream and the memory of one step, whose answers are poisoned before.
class ExchangeRankRun {
 public:
  // `device` outlives the rank.
  ExchangeRankRun(DeviceBackend* device, const ExchangeSpec& spec, std::int32_t rank)
      : spec_(spec), exchange_(*device->MakeExchange(spec, rank)) {
    if (spec.wire != kBf16Format) codec_ = *device->MakeCodec({.format = spec.wire});
    codecs.rows = codec_.get();
    if (rank < spec.expert_ranks) {
      const std::int32_t of_rank = spec.experts_of_rank();
      experts_ = ExpertsOf(device, spec.shape, rank * of_rank, (rank + 1) * of_rank);
    }
    stream_ = *device->MakeStream({});
    event_ = stream_->MakeEvent();
    const auto rows = static_cast<std::size_t>(spec.tokens_max);
    const std::size_t bytes = rows * static_cast<std::size_t>(spec.shape.hidden) * sizeof(Bf16);
    x_ = *device->Allocate(bytes, MemoryKind::kHost);
    y_ = *device->Allocate(bytes, MemoryKind::kHost);
  }
  [[nodiscard]] Exchange& exchange() { return *exchange_; }
  [[nodiscard]] Stream* stream() { return stream_.get(); }

  // Of the next steps: ExchangeStep::places; how they travel, at first as the group's largest rows.
  const std::int32_t* places = nullptr;
  StepCodecs codecs;
  LayerId layer;

  // A step of these tokens, which stay valid until Finish.
  absl::Status Begin(const ExchangeTokens& tokens, std::int32_t cover) {
    const ExchangeStep step = StepOf(tokens, cover);
    if (const absl::Status begun = exchange_->Step(stream_.get(), step); !begun.ok()) return begun;
    return stream_->Record(event_.get());
  }
  ExchangeStep StepOf(const ExchangeTokens& tokens, std::int32_t cover) {
    std::memcpy(x_->data(), tokens.x.data(), tokens.x.size() * sizeof(Bf16));
    std::memset(y_->data(), 0x5a, y_->bytes());
    count_ = tokens.x.size();
    return {.cover = cover,
            .layer = layer,
            .codecs = codecs,
            .tokens = tokens.count,
            .x = reinterpret_cast<const Bf16*>(x_->data()),
            .ids = tokens.ids.data(),
            .weights = tokens.weights.data(),
            .y = reinterpret_cast<Bf16*>(y_->data()),
            .places = places,
            .experts = experts_.get()};
  }
  // False: it did not end in that time.
  bool Finish(Duration timeout) { return event_->Wait(timeout); }
  [[nodiscard]] std::vector<Bf16> y() const {
    const auto* const first = reinterpret_cast<const Bf16*>(y_->data());
    return {first, first + count_};
  }

 private:
  const ExchangeSpec spec_;
  std::unique_ptr<Codec> codec_;
  const std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<ExpertTable> experts_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> y_;
  std::size_t count_ = 0;
  std::unique_ptr<DeviceEvent> event_;
  // Last: waits for what is queued before the rest goes.
  std::unique_ptr<Stream> stream_;
};

}  // namespace switchyard::testing
