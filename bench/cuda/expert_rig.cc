#include "bench/cuda/expert_rig.h"

#include "core/format/bf16.h"

namespace switchyard::bench {
namespace {

constexpr ActivationSpec kRounding[] = {{ActivationFormat::kFp8Group},
                                        {ActivationFormat::kBf16},
                                        {ActivationFormat::kInt8Row},
                                        {ActivationFormat::kFp8Static, 0.02F},
                                        {ActivationFormat::kNvfp4, 300.0F}};

// A value that the layer's code holds, before its scales; `at` chooses the scale of 16.
float ValueOf(Layer layer, std::uint64_t random, std::size_t at) {
  constexpr float kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const auto integer = [random](int values, int least) {
    return static_cast<float>(random % static_cast<std::uint64_t>(values)) +
           static_cast<float>(least);
  };
  switch (layer) {
    case Layer::kFp8:
      return integer(31, -15);
    case Layer::kBf16:
      return integer(31, -15) * 0.0013F;
    case Layer::kInt8:
      return integer(255, -127);
    case Layer::kW4Afp8:
      return integer(16, -8);
    case Layer::kNvfp4:
      break;
  }
  // Scales of 16 are E4M3 values; those of 8 to 15 eighths differ in all their bits.
  const float scale = static_cast<float>(8 + at / 16 * 5 % 8) / 8.0F;
  return kE2m1[random % 8] * scale * ((random & 8U) != 0 ? -1.0F : 1.0F);
}

void PointScales(Layer layer, const MoeShape& shape, std::span<const float> scales,
                 ExpertWeightsView* view) {
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const auto of = [&](std::int64_t outputs, std::int64_t k) -> WeightScalesView {
    switch (layer) {
      case Layer::kFp8:
        return {.blocks = scales.first(size(ScaleBlocks(outputs) * ScaleBlocks(k)))};
      case Layer::kInt8:
        return {.channels = scales.first(size(outputs))};
      case Layer::kW4Afp8:
        return {.groups = scales.first(size(outputs * ScaleBlocks(k)))};
      case Layer::kNvfp4:
        return {.tensor = 0.01F};
      case Layer::kBf16:
        break;
    }
    return {};
  };
  view->gate_scales = of(shape.intermediate, shape.hidden);
  view->up_scales = of(shape.intermediate, shape.hidden);
  view->down_scales = of(shape.hidden, shape.intermediate);
  view->inputs = view->middle = kRounding[static_cast<std::size_t>(layer)];
}

WireFormat FormatOf(Layer layer) {
  if (layer == Layer::kFp8) return kFp8Format;
  return layer == Layer::kInt8 ? kInt8Format : kBf16Format;
}

}  // namespace

Experts::Experts(CudaBackend& device, const Case& one) {
  const auto size =
      static_cast<std::size_t>(one.shape.hidden) * static_cast<std::size_t>(one.shape.intermediate);
  const std::vector<float> scales(size / 128 + 128, one.layer == Layer::kInt8 ? 0.002F : 0.02F);
  constexpr std::size_t kStep = 4096;
  const auto experts = static_cast<std::size_t>(one.shape.experts);
  std::vector<Bf16> values(3 * size + kStep * experts);
  SeededRng rng(7);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = FloatToBf16(ValueOf(one.layer, rng.Next(), i));
  }
  std::vector<TableEntry> entries;
  for (std::size_t e = 0; e < experts; ++e) {
    const auto all = std::span<const Bf16>(values).subspan(e * kStep, 3 * size);
    ExpertWeightsView view{.gate = all.first(size),
                           .up = all.subspan(size, size),
                           .down = all.subspan(2 * size, size)};
    PointScales(one.layer, one.shape, scales, &view);
    entries.push_back(
        {ExpertId{static_cast<std::int32_t>(e)}, OrExit(device.Pack(one.shape, view))});
    weight_bytes_ += entries.back().weights->bytes();
  }
  table_ = OrExit(device.MakeTable(std::move(entries)));
}

Rig::Rig(CudaBackend& device, const Experts& experts, const Case& one, std::int64_t pairs_max,
         WorkClass work_class)
    : device_(&device), case_(one), experts_(&experts) {
  workspace_ = OrExit(device.MakeWorkspace(one.shape, pairs_max));
  stream_ = OrExit(device.MakeStream({.work_class = work_class}));
  event_ = stream_->MakeEvent();
  const WireFormat format = FormatOf(one.layer);
  if (format != kBf16Format) codec_ = OrExit(device.MakeCodec({.format = format}));
  const RowBytes bytes = RowBytesOf(format, one.shape.hidden);
  data_bytes_ = one.tokens * static_cast<std::size_t>(bytes.data);
  host_rows_.resize(data_bytes_ + one.tokens * static_cast<std::size_t>(bytes.scales));
  host_out_.resize(one.tokens * static_cast<std::size_t>(one.shape.hidden) * 2);
  rows_ = OrExit(device.Allocate(host_rows_.size(), MemoryKind::kDevice));
  out_ = OrExit(device.Allocate(host_out_.size(), MemoryKind::kDevice));
  MakeRows(format);
  input_ = {.codec = codec_.get(),
            .rows = rows_->data(),
            .scales = rows_->data() + data_bytes_,
            .count = one.tokens,
            .slots = slots_.data(),
            .weights = weights_.data(),
            .out = out_->data()};
}

void Rig::Enqueue(bool copies) {
  const CopyPiece in{rows_->data(), host_rows_.data(), host_rows_.size()};
  const CopyPiece back{host_out_.data(), out_->data(), host_out_.size()};
  if (copies) OrExit(stream_->Copy({&in, 1}));
  OrExit(stream_->Run({.experts = experts_->table(),
                       .workspace = workspace_.get(),
                       .inputs = {&input_, 1},
                       .width = case_.width,
                       .combine = CombineUnit::kPerWorker}));
  if (copies) OrExit(stream_->Copy({&back, 1}));
}

void Rig::Finish() {
  OrExit(stream_->Record(event_.get()));
  while (!event_->done()) {
  }
  OrExit(event_->status());
}

double Rig::Latency(bool copies, int rounds) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    Enqueue(copies);
    Finish();
    times.push_back(Microseconds(std::chrono::steady_clock::now() - begin));
  }
  return Median(times);
}

void Rig::Map() {
  mappings_[0] = device_->MapHost(host_rows_);
  mappings_[1] = device_->MapHost(host_out_);
}

double Rig::Queued(int rounds, int queued) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < queued; ++i) Enqueue(false);
    Finish();
    times.push_back(Microseconds(std::chrono::steady_clock::now() - begin) / queued);
  }
  return Median(times);
}

// The host's part of a batch.
double Rig::Call() {
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    Enqueue(false);
    times.push_back(Microseconds(std::chrono::steady_clock::now() - begin));
    Finish();
  }
  return Median(times);
}

// Rows of codes that are no NaN, each for `width` experts that differ.
void Rig::MakeRows(const WireFormat& format) {
  for (std::size_t i = 0; i < data_bytes_; ++i) {
    // BF16: values from 1 to 4.
    const bool high = format == kBf16Format && i % 2 == 1;
    host_rows_[i] = static_cast<std::byte>(high ? 0x3fU + (rng_.Next() & 0x80U) + (rng_.Next() & 1U)
                                                : 0x30U + (rng_.Next() & 0x8fU));
  }
  const float scale = 0.01F;
  for (std::size_t at = data_bytes_; at < host_rows_.size(); at += sizeof(scale)) {
    std::memcpy(host_rows_.data() + at, &scale, sizeof(scale));
  }
  const auto experts = static_cast<std::uint64_t>(case_.shape.experts);
  for (std::uint32_t token = 0; token < case_.tokens; ++token) {
    const std::uint64_t first = rng_.Next() % experts;
    for (std::int32_t k = 0; k < case_.width; ++k) {
      slots_.push_back(
          static_cast<std::int32_t>((first + 3 * static_cast<std::uint64_t>(k)) % experts));
      weights_.push_back(0.125F);
    }
  }
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  for (std::size_t at = 0; at < host_rows_.size(); at += kPiece) {
    const std::size_t bytes = std::min(kPiece, host_rows_.size() - at);
    const CopyPiece in{rows_->data() + at, host_rows_.data() + at, bytes};
    OrExit(stream_->Copy({&in, 1}));
    Finish();
  }
}

}  // namespace switchyard::bench
