// A device as awkward as the seam allows: every piece of work runs on a thread of its stream, late
// by a random time, so that work of different streams ends out of order; events are late as well;
// device memory is unmapped for everybody but the device's own work, so that a touch by the host
// ends the process; and faults come when a test asks for them. The arithmetic is the CPU's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/rng.h"
#include "worker/device/device_backend.h"

namespace switchyard::testing {

struct LateDeviceOptions {
  std::string kernel_family = "portable_fp32";
  // False: rows and answers have to be copied to memory of the device and back.
  bool host_access = false;
  // Whether it shares its memory with other late devices, of this process and others.
  bool shares = false;
  // Whether MapHost gives mappings. Memory of the host is reached with them and without.
  bool maps_host = false;
  // As DeviceBackend::source_bytes_min.
  std::size_t source_bytes_min = std::numeric_limits<std::size_t>::max();
  std::optional<BatchSize> prefill_batch{};  // unset: as usual
  // KindAt says that this address is another device's.
  const void* foreign_memory = nullptr;
  // Upper bound of each delay.
  Duration late_max = std::chrono::microseconds(300);
  // Whether Stream::Precede is taken; what it would hold back is the test's.
  bool precedes = false;
  // What each row of an expert takes in addition, in decode and in other work.
  Duration decode_row{};
  Duration prefill_row{};
  std::uint64_t seed = 1;
};

// What a device reaches of the addresses that it has given out. Its buffers share it, since some
// outlive their device. Thread-safe.
class LateMappings {
 public:
  void Add(const std::byte* outside, std::byte* inside, std::size_t bytes);
  void Remove(const std::byte* outside);
  // Where the device itself reaches what the caller knows as `address`.
  [[nodiscard]] std::byte* Inside(const void* address) const;

 private:
  struct Mapping {
    std::byte* inside = nullptr;
    std::size_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Mapping> mapped_;  // guarded by mutex_; by outside address
};

class LateDevice final : public DeviceBackend {
 public:
  // What Stream::WaitFor takes as a stream of others: it holds work until Finish.
  class ForeignQueue {
   public:
    void Finish() { empty_.store(true); }
    [[nodiscard]] bool empty() const { return empty_.load(); }

   private:
    std::atomic<bool> empty_{false};
  };

  static absl::StatusOr<std::unique_ptr<LateDevice>> Create(LateDeviceOptions options);
  ~LateDevice() override;

  // The next run of experts, encoding or sum fails with `status`, at its event.
  void FailNextRun(absl::Status status);
  // The next run of experts is refused with `status` when it is enqueued.
  void RefuseNextRun(absl::Status status);
  // From now on everything fails: open events and later calls.
  void Die();
  // Until Hang(false) no work ends, as on a device whose kernel does not.
  void Hang(bool hangs) { hangs_.store(hangs); }
  [[nodiscard]] std::uint64_t runs() const { return runs_.load(); }
  [[nodiscard]] bool precedes() const { return options_.precedes; }
  // Calls of MapHost.
  [[nodiscard]] int mapped_memory() const { return mapped_memory_.load(); }
  // Buffers that AllocateShared and OpenShared have given out, and those that exist.
  [[nodiscard]] int shared_memory() const { return shared_memory_->load(); }
  [[nodiscard]] int shared_memory_ever() const { return shared_memory_ever_.load(); }

  [[nodiscard]] const CapabilitySet& capabilities() const override {
    return inner_->capabilities();
  }
  [[nodiscard]] bool host_access() const override { return options_.host_access; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes, MemoryKind kind) override;
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& weights) override {
    if (dead_.load()) return Death();
    return inner_->Pack(shape, weights);
  }
  absl::StatusOr<std::unique_ptr<ExpertTable>> MakeTable(std::vector<TableEntry> entries) override {
    if (dead_.load()) return Death();
    return inner_->MakeTable(std::move(entries));
  }
  absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                           std::int64_t pairs_max) override {
    return inner_->MakeWorkspace(shape, pairs_max);
  }
  [[nodiscard]] BatchSize PrefillBatch(const MoeShape&, const BatchSize& usual) const override {
    return options_.prefill_batch.value_or(usual);
  }
  [[nodiscard]] absl::StatusOr<MemoryKind> KindAt(const void* address) const override;
  std::unique_ptr<HostMapping> MapHost(std::span<std::byte>) override {
    ++mapped_memory_;
    return options_.maps_host ? std::make_unique<HostMapping>() : nullptr;
  }
  absl::StatusOr<SharedBuffer> AllocateShared(std::size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Buffer>> OpenShared(absl::string_view key,
                                                     std::size_t bytes) override;
  [[nodiscard]] std::size_t source_bytes_min() const override { return options_.source_bytes_min; }
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const override {
    return inner_->MakeCodec(spec);
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamOptions options) override;

  // For its streams.
  // Where the device itself reaches what the caller knows as `address`.
  [[nodiscard]] std::byte* Inside(const void* address) const { return mappings_->Inside(address); }
  // Refuses rows of memory that this device does not reach.
  [[nodiscard]] bool Reaches(const void* address) const;
  [[nodiscard]] absl::Status TakeFailure();
  [[nodiscard]] absl::Status TakeRefusal();
  [[nodiscard]] absl::Status Death() const;
  [[nodiscard]] bool hangs() const { return hangs_.load(); }
  Duration NextDelay();
  // What the experts' rows of `run` take in addition.
  [[nodiscard]] Duration TimeOf(const ExpertRun& run, WorkClass work_class) const;
  void CountRun() { runs_.fetch_add(1); }

 private:
  explicit LateDevice(LateDeviceOptions options)
      : options_(std::move(options)), rng_(options_.seed) {}

  LateDeviceOptions options_;
  std::unique_ptr<DeviceBackend> inner_;
  mutable std::mutex mutex_;
  SeededRng rng_;              // guarded by mutex_
  absl::Status next_failure_;  // guarded by mutex_
  absl::Status next_refusal_;  // guarded by mutex_
  const std::shared_ptr<LateMappings> mappings_ = std::make_shared<LateMappings>();
  // Shared with the buffers.
  const std::shared_ptr<std::atomic<int>> shared_memory_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> shared_memory_ever_{0};
  std::atomic<bool> dead_{false};
  std::atomic<bool> hangs_{false};
  std::atomic<int> mapped_memory_{0};
  std::atomic<std::uint64_t> runs_{0};
};

}  // namespace switchyard::testing
