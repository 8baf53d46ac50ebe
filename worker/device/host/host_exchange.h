// A rank of a group of devices that compute in host memory: who waits for whom, and why steps are
// no results.
//
//   begin:    send rows and choices; a header for every rank
//   rows:     wait for the headers of all ranks; run experts; a flag for every rank
//   answers:  wait for the flags of the ranks that have experts of our tokens; add up
//
// The two waits do not occupy the compute thread (step_parts.h). Each lasts at most Join's
// patience. A rank that fails says so in the heaps of all others, so that they fail at once and for
// the same reason; the reason of the earliest step wins.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/device/exchange.h"
#include "worker/device/host/exchange_heap.h"
#include "worker/device/host/exchange_rows.h"
#include "worker/device/host/step_parts.h"
#include "worker/device/memory.h"

namespace switchyard {

class HostStream;

class HostExchange final : public Exchange, private StepParts {
 public:
  // Errors: kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<std::unique_ptr<HostExchange>> Create(std::unique_ptr<ExchangeRows> rows);

  [[nodiscard]] const std::string& key() const override { return own_.key; }
  // Errors: as the seam; kFailedPrecondition (BAD_CONFIG), on all ranks, if one of them was made
  // for another group.
  absl::Status Join(std::span<const std::string> keys, Duration patience) override;
  bool CountInto(ExchangeCounts* counts) override;
  absl::Status Step(Stream* stream, const ExchangeStep& step) override;
  void Lose(std::int32_t rank) override;
  [[nodiscard]] absl::Status Fault() const override;

 private:
  enum class Stage : std::uint8_t { kBegin, kRows, kAnswers };
  enum class FaultKind : std::uint8_t { kLost = 1, kOtherStep = 2 };
  // Packed into a word, so that it is read and replaced as a whole.
  struct StepFault {
    FaultKind kind = FaultKind::kLost;
    std::int32_t rank = 0;
    std::uint64_t step = 0;  // from 1 on

    [[nodiscard]] std::uint64_t Packed() const;
    static std::optional<StepFault> Of(std::uint64_t packed);
  };
  // Neither: the step waits.
  struct Progress {
    bool arrived = false;
    std::optional<StepFault> fault{};
  };

  explicit HostExchange(std::unique_ptr<ExchangeRows> rows);
  absl::StatusOr<std::unique_ptr<Buffer>> Open(absl::string_view key, std::int32_t rank) const;
  [[nodiscard]] absl::Status CheckStep(const ExchangeStep& step) const;

  [[nodiscard]] bool Ready() const override;
  bool Advance(const ExchangeStep& step, const OtherWork& others) override;
  [[nodiscard]] Progress CheckProgress() const;
  // `missing`: a rank whose word has not come; below zero: all have.
  [[nodiscard]] Progress Await(std::int32_t missing) const;
  [[nodiscard]] std::int32_t FirstWithoutAnswer() const;
  // Returns the one of two ranks whose words have not come that will not come.
  [[nodiscard]] std::int32_t Sooner(std::int32_t missing, std::int32_t other) const;
  [[nodiscard]] bool IsLost(std::int32_t rank) const;
  void Begin(const ExchangeStep& step);
  void RunExperts(const ExchangeStep& step, const OtherWork& others);
  void Fail(const StepFault& fault);

  const std::unique_ptr<ExchangeRows> rows_;
  const HeapLayout layout_;
  SharedBuffer own_;
  // Set by Join, then constant.
  std::vector<std::unique_ptr<Buffer>> opened_;  // of other ranks
  std::vector<ExchangeHeap> heaps_;              // by rank, as this process maps them
  Duration patience_{};
  ExchangeCounts* counts_ = nullptr;  // set by CountInto

  Stream* stream_ = nullptr;  // of the caller's thread: where all steps go

  // The compute thread's.
  Stage stage_ = Stage::kBegin;
  std::uint64_t number_ = 1;  // of the step that is next or runs
  std::int32_t cover_ = 0;    // its
  std::int32_t layer_ = 0;
  std::int32_t formats_ = 0;  // its, as SourceHeader has them
  float global_scale_ = 1;
  std::uint64_t answering_ = 0;       // ranks that will answer this one's tokens, a bit for each
  std::vector<std::int32_t> tokens_;  // of each source
  TimePoint since_{};                 // when this stage began

  std::atomic<std::uint64_t> fault_{0};  // of a step of this rank; 0: none
  std::atomic<std::uint64_t> lost_{0};   // by Lose: a bit for each rank
};

}  // namespace switchyard
