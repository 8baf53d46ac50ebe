// Runs experts through the device seam and waits, for tests that ask what an expert answers.
#pragma once

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <utility>
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

// The memory of a run on a device that does not reach the host's: rows and answers lie there at
// addresses with the remainder that they have here, so that what is misaligned stays so.
class DeviceCopies {
 public:
  DeviceCopies(DeviceBackend& device, std::int64_t hidden, std::span<ExpertInput> inputs)
      : hidden_(hidden) {
    std::size_t bytes = kLine;
    for (const ExpertInput& input : inputs) {
      const Sizes sizes = SizesOf(input);
      bytes += sizes.rows + sizes.scales + sizes.out + 6 * kLine;
    }
    buffer_ = OkOrAbort(device.Allocate(bytes, MemoryKind::kDevice));
    at_ = buffer_->data();
    for (ExpertInput& input : inputs) Move(&input);
  }
  [[nodiscard]] std::span<const CopyPiece> in() const { return in_; }
  [[nodiscard]] std::span<const CopyPiece> out() const { return out_; }

 private:
  static constexpr std::size_t kLine = 64;
  struct Sizes {
    std::size_t rows = 0;
    std::size_t scales = 0;
    std::size_t out = 0;
  };
  [[nodiscard]] Sizes SizesOf(const ExpertInput& input) const {
    const RowBytes row =
        RowBytesOf(input.codec == nullptr ? kBf16Format : input.codec->format(), hidden_);
    return {.rows = input.count * static_cast<std::size_t>(row.data),
            .scales = input.count * static_cast<std::size_t>(row.scales),
            .out = input.count * static_cast<std::size_t>(hidden_) * sizeof(float)};
  }
  std::byte* Place(const void* like, std::size_t bytes) {
    const auto want = reinterpret_cast<std::uintptr_t>(like) % kLine;
    at_ += (kLine + want - reinterpret_cast<std::uintptr_t>(at_) % kLine) % kLine;
    std::byte* const placed = at_;
    at_ += bytes + kLine;
    return placed;
  }
  void Move(ExpertInput* input) {
    const Sizes sizes = SizesOf(*input);
    const auto move = [this](const std::byte** from, std::size_t bytes) {
      if (bytes == 0) return;
      std::byte* const to = Place(*from, bytes);
      in_.push_back({.to = to, .from = std::exchange(*from, to), .bytes = bytes});
    };
    move(&input->rows, sizes.rows);
    move(&input->scales, sizes.scales);
    if (sizes.out == 0) return;
    std::byte* const out = Place(input->out, sizes.out);
    auto* const host = static_cast<std::byte*>(std::exchange(input->out, out));
    out_.push_back({.to = host, .from = out, .bytes = sizes.out});
  }

  const std::int64_t hidden_;
  std::unique_ptr<Buffer> buffer_;
  std::byte* at_ = nullptr;
  std::vector<CopyPiece> in_;
  std::vector<CopyPiece> out_;
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
  std::optional<DeviceCopies> copies;
  absl::Status status;
  if (!device.host_access()) {
    copies.emplace(device, shape.hidden, inputs);
    status = stream->Copy(copies->in());
  }
  if (status.ok())
    status = stream->Run({.experts = table.get(),
                          .workspace = workspace.get(),
                          .inputs = inputs,
                          .out_dtype = OutputDtype::kF32,
                          .amax = amax});
  if (status.ok() && copies.has_value()) status = stream->Copy(copies->out());
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
