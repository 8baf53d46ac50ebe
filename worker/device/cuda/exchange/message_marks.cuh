// With messages, a rank's kernels tell the host how far they have come, so that it can end a wait
// for messages that do not come: those are no kernels of ours, and wait for ever.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/cuda/exchange/messages.h"
#include "worker/device/cuda/exchange/normal_words.cuh"

namespace switchyard::cuda {

// A kernel does both halves of an exchange or, with messages, one.
enum class ExchangePart : std::uint8_t { kWhole, kSend, kLand };

__device__ __forceinline__ std::uint32_t MarkOf(std::uint32_t number, Message message) {
  return 2 * number + static_cast<std::uint32_t>(message);
}

// By every thread of a kernel that writes messages, before it writes any.
__device__ __forceinline__ void MarkBegun(const ExchangeRank& group, std::uint32_t number,
                                          Message message) {
  if (blockIdx.x != 0 || threadIdx.x != 0 || group.report == nullptr) return;
  StoreWord(&group.report->begun, MarkOf(number, message));
}
// By every thread of a kernel that comes after them, before it reads any.
__device__ __forceinline__ void MarkArrived(const ExchangeRank& group, std::uint32_t number,
                                            Message message, const Words& words) {
  if (blockIdx.x != 0 || threadIdx.x != 0 || group.report == nullptr) return;
  StoreWord(&group.report->arrived, MarkOf(number, message));
  words.GiveUpIfTold(message == Message::kRows ? kTableWord : kAnswersWord);
}

}  // namespace switchyard::cuda
