// A GPU as a device of a worker, by the CUDA runtime. Hopper has kernels of its own; later GPUs run
// those that are portable.
//
// The runtime is linked statically and loads the driver when it is first called, so a program that
// holds this code starts on machines without a GPU.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/device/cuda/backend/cuda_options.h"
#include "worker/device/cuda/backend/cuda_sharing.h"
#include "worker/device/cuda/backend/cuda_stream.h"
#include "worker/device/cuda/backend/packer_pool.h"
#include "worker/device/device_backend.h"

namespace switchyard {

class CudaBackend final : public DeviceBackend {
 public:
  // Holds codecs, roundings and products against the CPU's scalar kernels; about a second. What
  // fails is logged and not advertised. Errors: kFailedPrecondition (UNSUPPORTED) without a driver,
  // a GPU of that index, or kernels for it; kResourceExhausted (OUT_OF_MEMORY); kUnavailable
  // (WORKER_LOST) when the GPU is lost meanwhile.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const CudaOptions& options);
  // Streams are gone.
  ~CudaBackend() override = default;

  [[nodiscard]] const CapabilitySet& capabilities() const override { return capabilities_; }
  [[nodiscard]] bool host_access() const override { return false; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes, MemoryKind kind) override;
  [[nodiscard]] absl::StatusOr<MemoryKind> KindAt(const void* address) const override;
  std::unique_ptr<HostMapping> MapHost(std::span<std::byte> memory) override;
  absl::StatusOr<SharedBuffer> AllocateShared(std::size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Buffer>> OpenShared(absl::string_view key,
                                                     std::size_t bytes) override;
  // Below it two launches and their events cost more than a CPU's copies and sums.
  [[nodiscard]] std::size_t source_bytes_min() const override { return source_bytes_min_; }
  // Rows travel as FP8 or BF16; at most 256 tokens of a rank (exchange/exchange_shape.h). Only with
  // the kernels of Hopper.
  absl::StatusOr<std::unique_ptr<Exchange>> MakeExchange(const ExchangeSpec& spec,
                                                         std::int32_t rank) override;
  // Keeps codes of FP8 as E4M3, of INT8 as INT8, INT4 and NVFP4 in four bits, and all else as BF16.
  // Errors: as the seam.
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& weights) override;
  absl::StatusOr<std::unique_ptr<ExpertTable>> MakeTable(std::vector<TableEntry> entries) override;
  // 8192 rows and 65,536 pairs, or as many pairs as 2 GiB of scratch hold.
  [[nodiscard]] BatchSize PrefillBatch(const MoeShape& shape,
                                       const BatchSize& usual) const override;
  absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                           std::int64_t pairs_max) override;
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const override;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamOptions options) override;

 private:
  explicit CudaBackend(const CudaOptions& options);
  absl::Status Prove(Logger* log);
  absl::Status Select();
  [[nodiscard]] bool Rounds(ActivationFormat format) const;

  CudaShared shared_;
  const int capability_major_;
  const bool portable_;
  const std::size_t source_bytes_min_;
  const std::shared_ptr<SharingBudget> sharing_;  // its buffers hold it too
  CapabilitySet capabilities_;
  std::vector<WireFormat> proven_formats_;
  std::vector<ActivationFormat> proven_roundings_;
  PackerPool packers_;
};

}  // namespace switchyard
