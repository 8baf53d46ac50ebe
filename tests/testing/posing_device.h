// A device that says it is one of another kind, so that a pool of several kinds can be tested on
// any machine. Everything but what it reports is another device's, which it owns.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/device_profile.h"
#include "worker/device/device_backend.h"

namespace switchyard::testing {

class PosingDevice final : public DeviceBackend {
 public:
  // Reports that it is a `profile`, a row of core/device_profile.cc, that has proven all that
  // `inner` has. `admit` is called before each expert that is packed, which its error refuses.
  PosingDevice(const char* profile, std::unique_ptr<DeviceBackend> inner,
               std::function<absl::Status()> admit = {})
      : inner_(std::move(inner)), admit_(std::move(admit)), capabilities_(inner_->capabilities()) {
    capabilities_.device_profile = profile;
    capabilities_.device = FindDeviceProfile(profile)->kind;
    capabilities_.kernel_family = profile;
  }

  [[nodiscard]] const CapabilitySet& capabilities() const override { return capabilities_; }
  [[nodiscard]] bool host_access() const override { return inner_->host_access(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes, MemoryKind kind) override {
    return inner_->Allocate(bytes, kind);
  }
  [[nodiscard]] absl::StatusOr<MemoryKind> KindAt(const void* address) const override {
    return inner_->KindAt(address);
  }
  std::unique_ptr<HostMapping> MapHost(std::span<std::byte> memory) override {
    return inner_->MapHost(memory);
  }
  absl::StatusOr<SharedBuffer> AllocateShared(std::size_t bytes) override {
    return inner_->AllocateShared(bytes);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> OpenShared(absl::string_view key,
                                                     std::size_t bytes) override {
    return inner_->OpenShared(key, bytes);
  }
  [[nodiscard]] std::size_t source_bytes_min() const override { return inner_->source_bytes_min(); }
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& weights) override {
    if (admit_) {
      if (absl::Status refused = admit_(); !refused.ok()) return refused;
    }
    return inner_->Pack(shape, weights);
  }
  absl::StatusOr<std::unique_ptr<ExpertTable>> MakeTable(std::vector<TableEntry> entries) override {
    return inner_->MakeTable(std::move(entries));
  }
  [[nodiscard]] BatchSize PrefillBatch(const MoeShape& shape,
                                       const BatchSize& usual) const override {
    return inner_->PrefillBatch(shape, usual);
  }
  absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                           std::int64_t pairs_max) override {
    return inner_->MakeWorkspace(shape, pairs_max);
  }
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const override {
    return inner_->MakeCodec(spec);
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamOptions options) override {
    return inner_->MakeStream(std::move(options));
  }

 private:
  std::unique_ptr<DeviceBackend> inner_;
  std::function<absl::Status()> admit_;
  CapabilitySet capabilities_;
};

}  // namespace switchyard::testing
