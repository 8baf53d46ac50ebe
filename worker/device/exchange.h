// One rank of a group of devices that run steps of MoE layers in lockstep: in a step every rank
// sends its tokens' rows to the ranks that have their experts, runs its own experts over all rows
// that come, and adds up the answers to its own tokens. Devices exchange rows by themselves,
// through memory that they share; no host takes part.
//
//   DeviceBackend::MakeExchange -> key() ... the keys of all ranks -> Join -> { Step }* -> Fault
//
// All ranks make the same steps in the same order, also with zero tokens. One that does not come is
// waited for as long as Join said; then the step and all later ones are no results, on every rank,
// and Fault says why. The same holds for ranks that disagree about a step. A group that has failed
// does not recover: a new one is made.
//
// Numbers. Rows travel in the step's wire format. An expert's answer is a row of BF16. A token's
// answers are added with its weights by fused multiply-adds in FP32 from zero, k ascending, and
// rounded once to BF16: with kPerExpert at the source, so that the sum is bit-equal wherever
// experts are; with kPerWorker at each rank for its own experts, and the source adds the ranks'
// sums, rank by rank, in FP32 and rounds again. Such sums may travel in a wire format of their own:
// the rank encodes them, and the source adds what it decodes to BF16. A token without experts gets
// zeros.
//
// Threads: one at a time, except for CheckIds, Lose and Fault. Destroyed when no step runs, before
// its device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/histogram.h"
#include "core/format/bf16.h"
#include "core/format/dtype.h"
#include "core/format/wire_format.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "worker/device/stream.h"

namespace switchyard {

// The group that ranks are made for; alike on all of them.
struct ExchangeSpec {
  MoeShape shape;
  std::int32_t ranks = 1;
  // Ranks below it have experts, all as many: rank r those from r * shape.experts / expert_ranks
  // on, unless a step says otherwise. The others only send tokens.
  std::int32_t expert_ranks = 1;
  std::int32_t tokens_max = 0;    // of a rank in a step
  WireFormat wire = kBf16Format;  // of the largest rows that a step may have
  CombineUnit unit = CombineUnit::kPerWorker;
  // Rows and answers travel as messages of a library of the device's, not by stores into each
  // other's memory: slower, for devices that do not reach it.
  bool by_messages = false;

  [[nodiscard]] std::int32_t experts_of_rank() const { return shape.experts / expert_ranks; }
  friend bool operator==(const ExchangeSpec&, const ExchangeSpec&) = default;
};

// Rows that an expert gets in a step of `cover` tokens of each source if routing is even, rounded
// up past it: a hint by which kernels are chosen, never a bound. Where some ranks have no experts,
// those are the sources. DeepEP's expected_m.
constexpr std::int64_t ExpectedRowsPerExpert(const ExchangeSpec& spec, std::int32_t cover) {
  const std::int32_t sources =
      spec.ranks > spec.expert_ranks ? spec.ranks - spec.expert_ranks : spec.ranks;
  return std::int64_t{sources} * cover * spec.shape.top_k / spec.shape.experts + 1;
}

class Codec;

// How what a step sends travels; null: as BF16. Both of the rank's device.
struct StepCodecs {
  const Codec* rows = nullptr;  // whose rows are not larger than those of ExchangeSpec::wire
  const Codec* sums = nullptr;  // with kPerWorker; a device may have few formats, or none
};

// One rank's part of a step. What it names stays valid and unchanged until an event that is
// recorded after the step is done. All of it is memory that the device reaches.
struct ExchangeStep {
  // The most tokens that any rank has in this step, the same on all ranks; the work is cut by it.
  std::int32_t cover = 0;
  LayerId layer{};                    // alike on all ranks; not what runs, but they are held to it
  StepCodecs codecs{};                // alike on all ranks
  std::int32_t tokens = 0;            // of this rank, at most `cover`
  const Bf16* x = nullptr;            // [tokens, hidden], 16-byte aligned
  const std::int32_t* ids = nullptr;  // [tokens, top_k]; outside of all experts: no expert
  const float* weights = nullptr;     // [tokens, top_k]
  void* y = nullptr;                  // [tokens, hidden], 16-byte aligned
  // [experts]: where each expert of the layer is, its rank times experts_of_rank plus its slot
  // there. Null: expert e is at e. Only a rank with tokens needs it.
  const std::int32_t* places = nullptr;
  // kF32: the sums before they are rounded.
  OutputDtype y_dtype = OutputDtype::kBf16;
  // The layer's experts of this rank, slot s its s-th. Null on a rank that has none.
  const ExpertTable* experts = nullptr;
  // [slots of `experts`]: a device that can, as of CountInto, adds the rows of each from a thread
  // of its own; nobody else writes them. Null: nobody counts.
  std::atomic<std::uint32_t>* slot_rows = nullptr;
};

// The steps of one rank or of several, as far as a device tells the host. Thread-safe.
struct ExchangeCounts {
  std::atomic<std::uint64_t> rows{0};  // that its experts have run over: a token once in a step
  Histogram peer_wait;  // of a step of a rank with experts, for the rows of all ranks
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // For the other ranks' Join; who has it can write into this rank's memory, so it is never logged.
  [[nodiscard]] virtual const std::string& key() const = 0;
  // Reaches the memory of the others: `keys` by rank, this rank's included. Once; takes
  // milliseconds. `patience` bounds the wait for another rank in each step. Errors:
  // kInvalidArgument (BAD_REQUEST) for another number of keys or a second call; those of
  // DeviceBackend::OpenShared, with the rank; kFailedPrecondition (BAD_CONFIG), with the rank, for
  // one that was made for another group, unless the device finds that in the first step only.
  virtual absl::Status Join(std::span<const std::string> keys, Duration patience) = 0;
  // Before the first step: adds to `counts`, which outlives this, from the device's threads. False:
  // this device does not tell the host.
  virtual bool CountInto(ExchangeCounts* /*counts*/) { return false; }
  // Enqueues this rank's part of the group's next step on `stream`, always the same one, and
  // returns. REQUIRES: Join has succeeded. Errors: kInvalidArgument (BAD_SHAPE, BAD_REQUEST) for a
  // step that does not fit the group, kUnimplemented (UNSUPPORTED) for a codec of sums that the
  // device does not have: nothing is enqueued, and the other ranks still wait for this one;
  // kUnavailable (NOT_READY) for a group that has made as many steps as the device tells apart;
  // those of the stream.
  virtual absl::Status Step(Stream* stream, const ExchangeStep& step) = 0;
  // Records this rank's part of a step in a graph instead: `capturing` is a stream of the caller's
  // in the middle of a capture, as Stream::WaitFor knows streams. The step is made whenever the
  // graph runs, which is to be between other steps of this rank and not beside them, and what
  // `step` names stays valid for as long as it may. Errors: as Step; kUnimplemented (UNSUPPORTED)
  // for a device without graphs; kFailedPrecondition (UNSUPPORTED) for a stream that is not being
  // captured.
  virtual absl::Status Record(void* capturing, const ExchangeStep& step);
  // So many recorded steps run now, which Step's errors and CheckIds count like others. Errors:
  // kUnavailable (NOT_READY), as Step.
  virtual absl::Status CountRecorded(std::uint32_t /*steps*/) { return absl::OkStatus(); }
  // Whether the ids of this rank's step `step`, from 0, were experts or -1, once an event after it
  // is done; for devices whose ids the host does not see. One of the last 1,024 steps. Errors:
  // kInvalidArgument, EXPERT_OUT_OF_RANGE or DUPLICATE_EXPERT, naming row, counted from
  // `first_row`, and k: the step's y is no result; the group goes on.
  [[nodiscard]] virtual absl::Status CheckIds(std::uint64_t /*step*/,
                                              std::int32_t /*first_row*/) const {
    return absl::OkStatus();
  }
  // There is evidence that the rank makes no more steps: none waits for it from now on, also those
  // that run, and a step that needs it is no result. From any thread.
  virtual void Lose(std::int32_t rank) = 0;
  // OK while all steps are results that were enqueued before an event that is done. Else why the
  // first of the others is none: kUnavailable (WORKER_LOST) for a rank that did not come,
  // kFailedPrecondition (BAD_CONFIG) for one that meant another step; both with `rank` and `step`
  // in their metadata. Costs a read of the host's memory.
  [[nodiscard]] virtual absl::Status Fault() const = 0;
};

}  // namespace switchyard
