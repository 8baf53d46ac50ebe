#include "worker/expert/served_counts.h"

#include <algorithm>

namespace switchyard {

ServedCounts::ServedCounts(const EpochRuntime& runtime, LoadLane lane)
    : lane_(lane), shape_(runtime.shape()) {
  for (const LayerRuntime& layer : runtime.layers) layers_.push_back(layer.layer);
  hits_.assign(layers_.size() * static_cast<std::size_t>(shape_.experts), 0);
}

void ServedCounts::Add(const LayerRuntime& layer, const RequestView& request,
                       std::int64_t request_row_bytes, std::int64_t reply_row_bytes) {
  const std::uint64_t rows = request.rows();
  ++counters_.frames;
  counters_.rows += rows;
  counters_.request_payload_bytes += rows * static_cast<std::uint64_t>(request_row_bytes);
  counters_.reply_payload_bytes += rows * static_cast<std::uint64_t>(reply_row_bytes);
  // Hits are kept by logical expert and not by slot, because a later epoch may place the expert in
  // another slot.
  std::uint64_t* hits = hits_.data() + static_cast<std::size_t>(layer.index) *
                                           static_cast<std::size_t>(shape_.experts);
  const auto count = [&](std::int32_t slot, std::uint32_t more) {
    const auto at = static_cast<std::size_t>(slot);
    hits[static_cast<std::size_t>(layer.slots[at].expert.value)] += more;
    if (layer.load != nullptr) layer.load->Add(lane_, at, more);
  };
  if (request.mode() == DispatchMode::kLowLatency) {
    for (std::int32_t slot = 0; slot < request.local_slots(); ++slot) {
      count(slot, request.slot_counts()[static_cast<std::size_t>(slot)]);
    }
    return;
  }
  for (std::uint32_t row = 0; row < request.rows(); ++row) {
    for (std::int32_t k = 0; k < request.top_k(); ++k) {
      const std::int32_t slot = request.slot(row, k);
      if (slot >= 0) count(slot, 1);
    }
  }
}

void ServedCounts::RecordAmax() { amax_.resize(hits_.size()); }

ExpertAmax* ServedCounts::AmaxOf(const LayerRuntime& layer) {
  if (amax_.empty()) return nullptr;
  return amax_.data() +
         static_cast<std::size_t>(layer.index) * static_cast<std::size_t>(shape_.experts);
}

void ServedCounts::Absorb(const ServedCounts& ended) {
  // An attachment of other sizes was made for another deployment: its hits would land on wrong
  // experts.
  if (!(ended.shape_ == shape_) || ended.layers_ != layers_) return;
  counters_.rows += ended.counters_.rows;
  counters_.request_payload_bytes += ended.counters_.request_payload_bytes;
  counters_.reply_payload_bytes += ended.counters_.reply_payload_bytes;
  counters_.frames += ended.counters_.frames;
  counters_.nan_rows += ended.counters_.nan_rows;
  for (std::size_t i = 0; i < hits_.size(); ++i) hits_[i] += ended.hits_[i];
  // Either side may record no magnitudes; std::min makes that an empty loop.
  for (std::size_t i = 0; i < std::min(amax_.size(), ended.amax_.size()); ++i) {
    amax_[i].inputs = std::max(amax_[i].inputs, ended.amax_[i].inputs);
    amax_[i].middle = std::max(amax_[i].middle, ended.amax_[i].middle);
  }
}

AttachmentCounters ServedCounts::Snapshot() const {
  AttachmentCounters counters = counters_;
  const auto experts = static_cast<std::size_t>(shape_.experts);
  for (std::size_t i = 0; i < hits_.size(); ++i) {
    // A model has tens of thousands of experts and a worker serves few, so zeros are not sent.
    if (hits_[i] == 0) continue;
    counters.hits.push_back({.layer = layers_[i / experts],
                             .expert = ExpertId{static_cast<std::int32_t>(i % experts)},
                             .rows = hits_[i],
                             .inputs_amax = amax_.empty() ? 0 : amax_[i].inputs,
                             .middle_amax = amax_.empty() ? 0 : amax_[i].middle});
  }
  return counters;
}

bool ServedCounts::Fits(const EpochRuntime& runtime) const {
  return runtime.shape() == shape_ &&
         std::equal(layers_.begin(), layers_.end(), runtime.layers.begin(), runtime.layers.end(),
                    [](LayerId a, const LayerRuntime& b) { return a == b.layer; });
}

}  // namespace switchyard
