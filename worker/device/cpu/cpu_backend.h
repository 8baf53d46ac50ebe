// The CPU as a device: one kernel family for the life of the backend, a small pool of threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "worker/device/cpu/codec/codec_kernels.h"
#include "worker/device/cpu/cpu_options.h"
#include "worker/device/cpu/expert_run.h"
#include "worker/device/cpu/kernel/kernel_family.h"
#include "worker/device/cpu/kernel/row_ops.h"
#include "worker/device/cpu/machine/compute_pool.h"
#include "worker/device/host/host_codec.h"
#include "worker/device/host/host_device.h"

namespace switchyard {

struct CpuScratch;

// The parts of a backend. Create chooses them; tests pass in wrong ones.
struct CpuParts {
  const KernelFamily* family = nullptr;
  const RowKernels* row_kernels = nullptr;
  const CodecKernels* codec_kernels = &kScalarCodecKernels;
  std::unique_ptr<HostCodec> bf16{};
  int compute_threads = 1;
  InlineLimits inline_limits{};
  Logger* log = nullptr;
};

class CpuBackend final : public HostDevice {
 public:
  // Chooses the parts by CPUID and tests them; takes some milliseconds. Errors: as MakeDevice. A
  // family that is requested by name and fails its self-test still makes a backend, but one that
  // advertises no scheme and refuses Pack: the operator sees the warning, and the coordinator
  // places nothing there.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const CpuOptions& options);
  // Tests each part. A wrong family is not advertised, nor is a wrong codec, and wrong row kernels
  // give way to the portable ones; each is logged. Errors: kInvalidArgument (BAD_CONFIG) for the
  // number of threads; kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<std::unique_ptr<CpuBackend>> CreateFrom(CpuParts parts);

  [[nodiscard]] const CapabilitySet& capabilities() const override { return capabilities_; }
  // Any hidden and intermediate from 1 to 2^20: what a family needs beyond them is padding of its
  // own. Errors: as the seam, kUnimplemented (UNSUPPORTED) also when the family is not proven.
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& weights) override;
  // A codec's kernels were tested when the backend was made, so this costs an allocation only.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const override;
  // The kernels by themselves, for benchmarks and for this device's own tests: callers of the seam
  // use streams. RunExperts aborts when a scratch or an expert is not of this backend's making or
  // of another shape; of two threads that run at once the pool helps one.
  absl::StatusOr<std::unique_ptr<KernelScratch>> MakeScratch(const MoeShape& shape) override;
  void RunExperts(std::span<const ExpertRows> batches, KernelScratch& scratch) override;
  std::size_t RunExpertsUntil(std::span<const ExpertRows> batches, KernelScratch& scratch,
                              absl::FunctionRef<bool()> stop) override;
  [[nodiscard]] const RowOps& row_ops() const override { return row_ops_; }

 private:
  explicit CpuBackend(CpuParts parts);
  // Runs the self-tests and fills capabilities_.
  absl::Status Prove();
  [[nodiscard]] absl::Status TestFormat(const WireFormat& format) const;
  [[nodiscard]] bool Rounds(ActivationFormat format) const;
  void ProveSchemes();
  [[nodiscard]] KernelRun RunOf(const ExpertRows& batch, const CpuScratch& scratch,
                                int thread) const;
  // Whole experts to each thread, and then the experts that are left over in pieces (RunSplit).
  std::size_t RunShared(std::span<const ExpertRows> batches, const CpuScratch& scratch,
                        absl::FunctionRef<bool()> stop);
  void RunSplit(const KernelRun& run);

  CpuParts parts_;
  CapabilitySet capabilities_;
  std::vector<WireFormat> proven_formats_;
  std::vector<ActivationFormat> proven_roundings_;
  CpuRowOps row_ops_;
  std::unique_ptr<ComputePool> pool_;
};

}  // namespace switchyard
