// Runs experts through the device seam and waits, for tests that ask what an expert answers.
#pragma once

#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <vector>

#include "worker/device/device_backend.h"

namespace switchyard::testing {

template <typename T>
T OkOrAbort(absl::StatusOr<T> made) {
  if (!made.ok()) {
    std::cerr << made.status() << std::endl;
    std::abort();
  }
  return *std::move(made);
}

// Rows for one expert; `out` is [rows, hidden], before rounding to BF16.
struct RowsForExpert {
  const PackedExpert* expert = nullptr;
  std::span<const Bf16* const> rows;
  float* out = nullptr;
  ExpertAmax* amax = nullptr;             // raised; null: not recorded
  const std::uint8_t* rounded = nullptr;  // [rows]: came in a quantized format; null: none did
};

// `inputs` name experts by their index in `experts`. Ends the process when the device refuses.
inline void RunInputs(DeviceBackend& device, const MoeShape& shape,
                      std::span<const PackedExpert* const> experts, std::span<ExpertInput> inputs,
                      ExpertAmax* amax = nullptr) {
  std::vector<TableEntry> entries;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    entries.push_back({ExpertId{static_cast<std::int32_t>(e)},
                       std::shared_ptr<const PackedExpert>(std::shared_ptr<void>(), experts[e])});
  }
  MoeShape made_for = shape;
  made_for.experts = std::max(shape.experts, static_cast<std::int32_t>(experts.size()));
  const auto table = OkOrAbort(device.MakeTable(std::move(entries)));
  const auto workspace = OkOrAbort(device.MakeWorkspace(made_for, 4096));
  const auto stream = OkOrAbort(device.MakeStream({.work_class = WorkClass::kPrefill}));
  const auto event = stream->MakeEvent();
  absl::Status status = stream->Run({.experts = table.get(),
                                     .workspace = workspace.get(),
                                     .inputs = inputs,
                                     .out_dtype = OutputDtype::kF32,
                                     .amax = amax});
  if (status.ok()) status = stream->Record(event.get());
  while (status.ok() && !event->Wait(std::chrono::seconds(1))) {
  }
  if (status.ok()) status = event->status();
  if (!status.ok()) {
    std::cerr << status << std::endl;
    std::abort();
  }
}

inline void RunOnDevice(DeviceBackend& device, const MoeShape& shape,
                        std::span<const RowsForExpert> batches) {
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto bf16 = OkOrAbort(device.MakeCodec({.format = kBf16Format}));
  std::vector<const PackedExpert*> experts;
  std::vector<ExpertInput> inputs;
  std::vector<std::vector<Bf16>> rows;
  std::vector<std::vector<std::int32_t>> slots;
  std::vector<ExpertAmax> amax(batches.size());
  bool records = false;
  for (const RowsForExpert& batch : batches) {
    const auto slot = static_cast<std::int32_t>(experts.size());
    experts.push_back(batch.expert);
    records = records || batch.amax != nullptr;
    // A row an input: each says for itself whether a codec has rounded it.
    for (std::size_t r = 0; r < batch.rows.size(); ++r) {
      rows.emplace_back(batch.rows[r], batch.rows[r] + hidden);
      slots.push_back({slot});
      const bool rounded = batch.rounded != nullptr && batch.rounded[r] != 0;
      inputs.push_back({.codec = rounded ? bf16.get() : nullptr,
                        .rows = reinterpret_cast<const std::byte*>(rows.back().data()),
                        .scales = nullptr,
                        .count = 1,
                        .slots = slots.back().data(),
                        .weights = nullptr,
                        .out = batch.out + r * hidden});
    }
  }
  RunInputs(device, shape, experts, inputs, records ? amax.data() : nullptr);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    if (batches[b].amax == nullptr) continue;
    batches[b].amax->inputs = std::max(batches[b].amax->inputs, amax[b].inputs);
    batches[b].amax->middle = std::max(batches[b].amax->middle, amax[b].middle);
  }
}

}  // namespace switchyard::testing
