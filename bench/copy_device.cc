#include "bench/copy_device.h"

#include <utility>

#include "bench/measure.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard::bench {
namespace {

class NoExpert final : public PackedExpert {
 public:
  [[nodiscard]] std::int64_t bytes() const override { return 1; }
};

class CopyScratch final : public KernelScratch {
 public:
  explicit CopyScratch(std::int64_t hidden) : hidden_(hidden) {}
  [[nodiscard]] std::int64_t hidden() const { return hidden_; }

 private:
  std::int64_t hidden_;
};

class CopyDevice final : public HostDevice {
 public:
  CopyDevice(std::unique_ptr<CpuBackend> cpu, std::atomic<std::int64_t>* busy_ns)
      : cpu_(std::move(cpu)), busy_ns_(busy_ns) {}

  [[nodiscard]] const CapabilitySet& capabilities() const override { return cpu_->capabilities(); }
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& /*shape*/,
                                                     const ExpertWeightsView& /*raw*/) override {
    return std::make_unique<NoExpert>();
  }
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const override {
    return cpu_->MakeCodec(spec);
  }

 private:
  absl::StatusOr<std::unique_ptr<KernelScratch>> MakeScratch(const MoeShape& shape) override {
    return std::make_unique<CopyScratch>(shape.hidden);
  }
  void RunExperts(std::span<const ExpertRows> batches, KernelScratch& scratch) override {
    const std::int64_t hidden = static_cast<CopyScratch&>(scratch).hidden();
    const double seconds = SecondsOf([&] { CopyAll(batches, hidden); });
    *busy_ns_ += static_cast<std::int64_t>(seconds * 1e9);
  }
  static void CopyAll(std::span<const ExpertRows> batches, std::int64_t hidden) {
    for (const ExpertRows& batch : batches) {
      float* out = batch.out;
      for (const Bf16* row : batch.rows) {
        for (std::int64_t i = 0; i < hidden; ++i) out[i] = Bf16ToFloat(row[i]);
        out += hidden;
      }
    }
  }
  [[nodiscard]] const RowOps& row_ops() const override { return cpu_->row_ops(); }

  std::unique_ptr<CpuBackend> cpu_;
  std::atomic<std::int64_t>* busy_ns_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCopyDevice(std::atomic<std::int64_t>* busy_ns) {
  SY_ASSIGN_OR_RETURN(auto cpu, CpuBackend::Create({}));
  return std::make_unique<CopyDevice>(std::move(cpu), busy_ns);
}

}  // namespace switchyard::bench
