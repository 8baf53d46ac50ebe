// One CTA says the words of a step, into the outbox and to itself.
#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/message_marks.cuh"
#include "worker/device/cuda/exchange/messages.h"
#include "worker/device/cuda/exchange/normal_words.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = kAnswerChunksMax;

struct SealArguments {
  ExchangeRank group;
  ExchangeStep step;
  std::uint32_t hash;
  Message message;
};

__global__ void SealKernel(const __grid_constant__ SealArguments args) {
  const ExchangeRank& group = args.group;
  const bool of_rows = args.message == Message::kRows;
  StepNumber asked(of_rows ? &group.state->dispatch_parts : &group.state->combine_parts);
  const Words words(group, asked.Get());
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0 && group.report != nullptr) {
    atomicOr(&group.state->lost, LoadWord(&group.report->gone));
  }
  __syncthreads();
  if (!of_rows) {
    words.Tell(kAnswersWord + thread, 0, 0);
  } else if (thread == 0) {
    words.TellTable(args.step, args.hash);
    words.Tell(kRowsWord, 0, 0);
  }
}

cudaError_t Seal(const ExchangeRank& rank, const ExchangeStep& step, Message message,
                 cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || !rank.shape.by_messages) return cudaErrorInvalidValue;
  return LaunchExchange(&SealKernel, SealArguments{rank, step, StepHash(rank.shape, step), message},
                        1, kThreads, 0, false, stream);
}

}  // namespace

cudaError_t SealRowMessages(const ExchangeRank& rank, const ExchangeStep& step,
                            cudaStream_t stream) {
  return Seal(rank, step, Message::kRows, stream);
}
cudaError_t SealAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step,
                               cudaStream_t stream) {
  return Seal(rank, step, Message::kAnswers, stream);
}

}  // namespace switchyard::cuda
