// The seam's Exchange by the stores of GPUs (worker/device/cuda/exchange), or by messages, with the
// experts between dispatch and combine.
//
// With stores a step enqueues kernels only: it may be captured into a graph, and costs the host a
// dozen launches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "worker/device/cuda/backend/cuda_stream.h"
#include "worker/device/cuda/backend/cuda_workspace.h"
#include "worker/device/cuda/backend/exchange_member.h"
#include "worker/device/cuda/exchange/landed_pairs.h"
#include "worker/device/cuda/messages/message_carrier.h"
#include "worker/device/exchange.h"

namespace switchyard {

class CudaExchange final : public Exchange {
 public:
  // `device` is the one of `shared`. Errors: as MakeExchange.
  static absl::StatusOr<std::unique_ptr<CudaExchange>> Create(DeviceBackend* device,
                                                              CudaShared* shared,
                                                              const ExchangeSpec& spec,
                                                              std::int32_t rank);
  ~CudaExchange() override;

  [[nodiscard]] const std::string& key() const override {
    return messages_ == nullptr ? member_->key() : messages_->key();
  }
  absl::Status Join(std::span<const std::string> keys, Duration patience) override;
  absl::Status Step(Stream* stream, const ExchangeStep& step) override;
  absl::Status Record(void* capturing, const ExchangeStep& step) override;
  absl::Status CountRecorded(std::uint32_t steps) override { return member_->CountSteps(steps); }
  [[nodiscard]] absl::Status CheckIds(std::uint64_t step, std::int32_t first_row) const override {
    return member_->CheckIds(step, first_row);
  }
  void Lose(std::int32_t rank) override;
  [[nodiscard]] absl::Status Fault() const override;

 private:
  CudaExchange(CudaShared* shared, const ExchangeSpec& spec) : shared_(shared), spec_(spec) {}

  [[nodiscard]] bool has_experts() const { return workspace_ != nullptr; }
  // Memory for the experts of this rank.
  absl::Status AllocateExperts(DeviceBackend* device);
  [[nodiscard]] absl::Status Check(const ExchangeStep& step) const;
  [[nodiscard]] absl::Status CheckCodecs(const StepCodecs& codecs) const;
  [[nodiscard]] cuda::ExchangeStep StepOfKernels(const ExchangeStep& step) const;
  absl::Status Enqueue(const ExchangeStep& step, cudaStream_t stream);
  void Carry(const cuda::Messages& messages, cudaStream_t stream);
  absl::Status EnqueueByMessages(const ExchangeStep& step, cudaStream_t stream);
  absl::Status RunExperts(const ExchangeStep& step, const cuda::ExchangeStep& of_kernels,
                          cudaStream_t stream);
  absl::Status RunPass(const ExchangeStep& step, const cuda::ExchangeStep& of_kernels,
                       const cuda::PairWindow& window, cudaStream_t stream);

  CudaShared* const shared_;
  const ExchangeSpec spec_;
  std::unique_ptr<ExchangeMember> member_;
  std::unique_ptr<CudaWorkspace> workspace_;  // null: no experts
  int pass_pairs_ = 0;                        // that it has room for
  std::unique_ptr<Buffer> pair_memory_;
  cuda::LandedPairs pairs_;
  std::unique_ptr<Buffer> answers_;           // BF16 [slots][hidden]
  std::unique_ptr<MessageCarrier> messages_;  // null: stores
};

}  // namespace switchyard
