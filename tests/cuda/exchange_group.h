// A group of ranks in one process, on one GPU or several that reach each other's memory, for tests
// and benchmarks of the exchange. Tokens are random; the answers of fake experts are predicted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/device_buffer.h"
#include "tests/cuda/exchange_kernels.h"
#include "worker/device/cuda/exchange/low_latency.h"
#include "worker/device/cuda/exchange/messages.h"
#include "worker/device/cuda/exchange/normal.h"

namespace switchyard::cuda::testing {

// The tokens of one rank in one step, on the host.
struct RankTokens {
  int tokens = 0;
  std::vector<std::uint16_t> x;   // BF16 [tokens][hidden]
  std::vector<std::int32_t> ids;  // [tokens][top_k]
  std::vector<float> weights;     // [tokens][top_k]
};
// Distinct experts for each token, a share `absent` of the choices -1; values with outliers.
RankTokens RandomTokens(const ExchangeShape& shape, int tokens, double absent,
                        std::mt19937_64& random);

// How rows and sums of a step travel.
struct WireForms {
  ExchangeFormat format = ExchangeFormat::kFp8;
  float global_scale = 1.0F;
  AnswerFormat answers = AnswerFormat::kBf16;
};

// A row of `hidden` values as the rank that has its experts reads it.
std::vector<float> DecodedRow(const WireForms& forms, int hidden, const std::uint16_t* x);
// What combine gives a token with FakeExperts: bit by bit.
std::vector<std::uint16_t> ExpectedToken(const ExchangeShape& shape, const WireForms& forms,
                                         const RankTokens& from, int token);

class ExchangeGroup {
 public:
  // Rank r is on device r modulo `devices`.
  ExchangeGroup(const ExchangeShape& shape, int devices, std::uint64_t timeout_ns);
  ~ExchangeGroup();
  ExchangeGroup(const ExchangeGroup&) = delete;
  ExchangeGroup& operator=(const ExchangeGroup&) = delete;

  // Makes it the tokens of the rank's next steps.
  void SetTokens(int rank, const RankTokens& tokens, int cover);
  // For all steps of all ranks from now on. At first the shape's first format and BF16.
  void SetForms(const WireForms& forms);
  void SetFormsOf(int rank, const WireForms& forms);
  void SetLayerOf(int rank, int layer);
  void SetReport(int rank, ExchangeReport* report);
  // As if all ranks had made so many steps, which leave every buffer with what it has: a number
  // that differs from the last one by a multiple of kExchangeBuffers.
  void SetStepsMade(std::uint64_t steps);
  // Of rank 0.
  [[nodiscard]] WireForms forms() const;
  // Where experts are, for all steps from now on: ExchangeStep::places.
  void SetPlaces(const std::vector<std::int32_t>& places);
  // SMs that kernels take, and the stream of what a rank does, from now on.
  void SetSms(int sms);
  void SetStream(int rank, cudaStream_t stream);
  // Adds ids and weights for as many tokens, for benchmarks; Route makes them the next steps'.
  int AddRouting(int rank, const RankTokens& tokens);
  void Route(int rank, int routing);
  void Select(int rank) const;
  void Dispatch(int rank, bool dependent = false);
  void Experts(int rank, bool dependent = false);
  void Combine(int rank, bool dependent = false);
  // A step of all ranks with messages, which copies carry; none from rank `lost`. Calls `give_up`
  // when messages of `at` have been carried, before they are sealed.
  void StepByMessages(int lost = -1, Message at = Message::kRows,
                      const std::function<void()>& give_up = {});
  // The same of one rank on its stream, with whoever carries messages.
  using CarryMessages = std::function<void(const Messages& messages, const std::byte* outbox,
                                           std::byte* heap, cudaStream_t stream)>;
  void StepByMessages(int rank, const CarryMessages& carry);
  void Touch(int rank, bool dependent = false);
  void Barrier(int rank);
  void Synchronize();
  // Of the rank, after Synchronize.
  [[nodiscard]] ExchangeState State(int rank) const;
  [[nodiscard]] std::vector<std::uint16_t> Out(int rank) const;  // [tokens_max][hidden]
  void PoisonOut(int rank);
  // Empty if the lists of the rank's last dispatch, and the rows that they name, are those of the
  // tokens of all ranks; else what is wrong.
  [[nodiscard]] std::string WrongLists(int rank, const std::vector<RankTokens>& of_ranks) const;

  [[nodiscard]] const ExchangeShape& shape() const { return shape_; }
  [[nodiscard]] int ranks() const { return shape_.ranks; }
  [[nodiscard]] cudaStream_t stream(int rank) const { return members_[At(rank)]->stream; }
  [[nodiscard]] const ExchangeRank& rank(int rank) const { return members_[At(rank)]->rank; }
  // What a product takes of the rank's last dispatch, and where combine reads answers.
  [[nodiscard]] GemmRows LandedRows(int rank) const;
  [[nodiscard]] GemmGroups Groups(int rank) const;
  [[nodiscard]] std::uint16_t* answers(int rank) const { return members_[At(rank)]->answers.get(); }

 private:
  struct Member {
    ExchangeRank rank;
    ExchangeStep step;
    int device = 0;
    cudaStream_t own_stream = nullptr;
    cudaStream_t stream = nullptr;
    DeviceBuffer<std::byte> heap;
    DeviceBuffer<std::byte> outbox;
    DeviceBuffer<ExchangeState> state;
    DeviceBuffer<std::uint16_t> x;
    DeviceBuffer<std::int32_t> ids;
    DeviceBuffer<std::int32_t> places;
    DeviceBuffer<float> weights;
    DeviceBuffer<std::int32_t> counts;
    DeviceBuffer<std::int32_t> offsets;
    DeviceBuffer<std::int32_t> row_index;
    DeviceBuffer<std::int32_t> slots;
    DeviceBuffer<float> choice_weights;
    DeviceBuffer<std::uint16_t> answers;
    DeviceBuffer<std::uint16_t> out;
    DeviceBuffer<std::uint32_t> sink;
    DeviceBuffer<std::uint32_t> barrier;
    DeviceBuffer<std::uint32_t*> barriers;
    std::vector<DeviceBuffer<std::int32_t>> routed_ids;
    std::vector<DeviceBuffer<float>> routed_weights;
  };
  static std::size_t At(int rank) { return static_cast<std::size_t>(rank); }
  using MessagesOf = Messages (*)(const ExchangeRank& rank, int cover);
  void Carry(MessagesOf messages, int lost);

  const ExchangeShape shape_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace switchyard::cuda::testing
