// A layer of many tokens over the ranks of an exchange, with experts of random weights in FP8: what
// exchange_prefill_bench.cc measures.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/cuda/exchange_group.h"
#include "tests/cuda/random_weights.h"
#include "worker/device/cuda/decode/fused_ffn.h"
#include "worker/device/cuda/gemm/prefill_packed.h"

namespace switchyard::cuda::bench {

struct PrefillModel {
  const char* name;
  FfnShape shape;
  int experts;
  int top_k;
  int weights;  // layers that have their own
  int chain;    // layers of a graph
};

// The tokens of each rank.
std::vector<testing::RankTokens> TokensOf(const PrefillModel& model, int ranks, int tokens);

class PrefillLayer {
 public:
  // A group for each of `parts` of the tokens.
  PrefillLayer(const PrefillModel& model, const std::vector<testing::RankTokens>& tokens,
               int parts);
  ~PrefillLayer();
  PrefillLayer(const PrefillLayer&) = delete;
  PrefillLayer& operator=(const PrefillLayer&) = delete;

  // SMs that the exchange has beside products, which then have the others.
  void Share(int exchange_sms) { exchange_sms_ = exchange_sms; }

  // A rank's part of layer i of a graph, on the stream of group 0.
  void Serial(int rank, int i);
  void Products(int rank, int i);
  void Exchange(int rank);
  // Two parts in turn; `count` layers are in the graph.
  void InHalves(int rank, int i, int count);

  // The relative error of the rows of all experts, of a layer of few tokens. Leaves the tokens as
  // they were.
  double Error();
  // What combine made of all tokens of all ranks.
  [[nodiscard]] std::vector<std::uint16_t> Answers() const;
  void PoisonAnswers();
  [[nodiscard]] bool faulted() const;
  testing::ExchangeGroup& group(int part) { return *groups_[At(part)]; }

  // Microseconds of the products at the nominal 1979 TFLOPS, and of the bytes of a rank to others,
  // both ways, at 355 GB/s.
  [[nodiscard]] double Operations() const;
  [[nodiscard]] double Wire() const;

 private:
  // The experts of a layer of one rank, packed, and where each expert's weights are.
  struct Matrix {
    Matrix(const testing::WeightSpec& spec, std::uint32_t seed, bool keep_plain);
    [[nodiscard]] PackedWeights packed() const;
    testing::RandomWeights weights;
    testing::DeviceBuffer<const std::byte*> of_expert;
    testing::DeviceBuffer<const float*> scales_of_expert;
  };
  struct Experts {
    std::vector<Matrix> w13;
    std::vector<Matrix> w2;
  };
  // Of one rank and part.
  struct Hidden {
    testing::DeviceBuffer<std::byte> rows;
    testing::DeviceBuffer<float> scales;
    testing::DeviceBuffer<std::uint32_t> workspace;
  };
  struct Lane {
    cudaStream_t exchange = nullptr;
    cudaStream_t products = nullptr;
    cudaEvent_t landed[2] = {};
    cudaEvent_t made[2] = {};
  };
  static std::size_t At(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] int ranks() const { return groups_.front()->ranks(); }
  [[nodiscard]] int slots() const { return ExchangeSlotsMax(groups_.front()->shape()); }
  [[nodiscard]] std::int64_t ScaleStride() const { return ScaleStrideOf(slots()); }

  void SetTokens(const std::vector<testing::RankTokens>& tokens, int cover);
  void MakeRank(int rank);
  void First(int rank, int part, int layer, int sms, cudaStream_t stream);
  void Second(int rank, int part, int layer, int sms, cudaStream_t stream);
  [[nodiscard]] double ErrorOf(int rank);
  void RunPart(int rank, int part, int layer, int sms, cudaStream_t stream);

  const PrefillModel model_;
  const std::vector<testing::RankTokens> tokens_;
  std::vector<std::unique_ptr<testing::ExchangeGroup>> groups_;
  std::vector<std::unique_ptr<Experts>> experts_;  // by rank
  std::vector<std::vector<Hidden>> hidden_;        // by rank and part
  std::vector<Lane> lanes_;                        // by rank
  int exchange_sms_ = 0;
};

}  // namespace switchyard::cuda::bench
