// How one rank's rows move in a step of its group: out to the ranks that have their experts,
// through this rank's experts, and back as answers that are added up. Flags are the business of
// HostExchange.
//
// Threads: the compute thread. Allocates nothing after Create.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/device/device_backend.h"
#include "worker/device/host/aligned_buffer.h"
#include "worker/device/host/exchange_heap.h"
#include "worker/device/host/host_kernels.h"
#include "worker/device/host/other_work.h"

namespace switchyard {

class ExchangeRows {
 public:
  // `pairs_max` of the workspace that Parts takes.
  static std::int64_t PairsOfPass(const ExchangeSpec& spec);

  struct Parts {
    ExchangeSpec spec;
    std::int32_t rank = 0;
    HostKernels* kernels = nullptr;          // outlives the object
    std::unique_ptr<Workspace> workspace{};  // of spec.shape; null: the rank has no experts
  };
  // Errors: kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<std::unique_ptr<ExchangeRows>> Create(Parts parts);

  [[nodiscard]] const ExchangeSpec& spec() const { return parts_.spec; }
  [[nodiscard]] std::int32_t rank() const { return parts_.rank; }
  [[nodiscard]] bool has_experts() const { return parts_.rank < parts_.spec.expert_ranks; }

  [[nodiscard]] const HeapLayout& layout() const { return layout_; }
  // A row of the codec takes these; null: BF16.
  [[nodiscard]] RowBytes BytesOf(const Codec* codec) const;

  // `heaps` by rank in all of these; `number` is the step's, from 1 on.

  // Writes rows and choices to where their experts are. Returns the ranks that will answer, a bit
  // for each.
  std::uint64_t Send(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                     const ExchangeStep& step);
  // Runs this rank's experts over the rows in its heap, and writes the answers to their sources.
  // `tokens` of each source. What the heap holds is not trusted. Returns how many tokens had an
  // expert here.
  std::uint64_t RunExperts(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                           std::span<const std::int32_t> tokens, const ExchangeStep& step,
                           const OtherWork& others);
  // Adds up the answers in this rank's heap.
  void Combine(std::span<const ExchangeHeap> heaps, std::uint64_t number, const ExchangeStep& step);

 private:
  // A token's pairs in the pass that is being gathered.
  struct PassToken {
    std::int32_t source = 0;
    std::int32_t token = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  explicit ExchangeRows(Parts parts);
  // Where an expert of the step is; -1: it is none.
  [[nodiscard]] std::int32_t PlaceOf(const ExchangeStep& step, std::int32_t expert) const;
  // The rank that has the expert; -1: no expert.
  [[nodiscard]] std::int32_t RankOf(std::int32_t place) const;
  void SendRow(std::span<const ExchangeHeap> heaps, std::uint64_t number, std::int32_t token,
               std::uint64_t ranks, const ExchangeStep& step);
  // Adds this rank's share of a token's choices to the pass. False: it has none.
  bool Gather(std::span<const ExchangeHeap> heaps, std::uint64_t number, std::int32_t source,
              std::int32_t token, const Codec* codec);
  void RunPass(std::span<const ExchangeHeap> heaps, std::uint64_t number, const ExchangeStep& step,
               const OtherWork& others);
  // The sum of this rank's experts for a token of the pass, to its source.
  void SendSum(std::span<const ExchangeHeap> heaps, std::uint64_t number, const PassToken& of,
               const Codec* codec);
  // A rank's sum for a token of this rank, decoded.
  const Bf16* SumOf(const ExchangeHeap& own, std::uint64_t number, std::int32_t rank,
                    std::int32_t token, const Codec* codec);
  // terms_ with `weights`, or their plain sum if there are none, into `y`.
  void Sum(std::span<const float> weights, void* y, OutputDtype y_dtype);

  const Parts parts_;
  const HeapLayout layout_;
  const std::size_t hidden_;
  const std::size_t top_k_;
  const std::size_t pairs_of_pass_;
  AlignedBuffer encoded_;  // a row and its scales
  AlignedBuffer answers_;  // [pairs of a pass, hidden] BF16; with kPerWorker
  AlignedBuffer decoded_;  // [expert ranks, hidden] BF16: sums that came in a format of their own
  // These belong to one pass at a time.
  std::vector<ExpertInput> inputs_;  // one for each pair
  std::vector<std::int32_t> slots_;  // of pairs
  std::vector<float> weights_;       // of pairs
  std::vector<PassToken> tokens_;
  // These belong to one sum at a time.
  std::vector<const Bf16*> terms_;
  std::vector<float> factors_;
};

}  // namespace switchyard
