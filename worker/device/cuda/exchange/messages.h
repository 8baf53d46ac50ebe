// A step of a group whose ranks cannot write into each other's memory, or shall not: what they
// exchange travels as messages of somebody else, such as NCCL, which gets a message in the rank's
// outbox and puts it into the same step's place in the heap of the other.
//
//   rank r:  WriteRowMessages -> RowMessages travel -> Seal -> seals travel -> ListRowMessages
//            -> experts, by ExchangeRows
//            -> WriteAnswerMessages -> AnswerMessages travel -> Seal -> seals travel
//            -> AddAnswerMessages
//
// The layout of heaps, lists, numbers and faults are those of normal.h, for any number of tokens;
// answers come back per worker. ExchangeRank::heaps names the outbox for every other rank: a
// message is the same for all of them, but for answers, whose part for a source lies where those of
// that source would. Messages are of one size on all ranks, by the step's cover; so ranks have to
// agree about it beforehand, while other disagreements are found as with stores.
//
// Messages that do not come are not waited for by these kernels but by whoever carries them. It
// gives up by setting ExchangeReport::gone of all other ranks before it ends its waits: what comes
// after them then counts as no result. ExchangeReport::begun and arrived differ while messages are
// on their way.
//
// Seals are the words of normal_words.cuh, in the header. A wait that is ended may leave another
// rank with a message that looks whole and is not (NCCL's sender passes on what its buffers held,
// prims_simple.h of 2.28). So the seal is written once the messages before have been sent, and says
// whether this rank has given up by then; it is one word that travels as it is.
//
// The functions check arguments, enqueue one kernel and return. Errors: cudaErrorInvalidValue.
#pragma once

#include <array>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/exchange_rank.h"

namespace switchyard::cuda {

// The two exchanges of a step.
enum class Message : std::uint32_t { kRows = 1, kAnswers = 2 };

cudaError_t WriteRowMessages(const ExchangeRank& rank, const ExchangeStep& step,
                             cudaStream_t stream);
cudaError_t ListRowMessages(const ExchangeRank& rank, const ExchangeStep& step,
                            cudaStream_t stream);
// For the messages that have just been sent.
cudaError_t SealRowMessages(const ExchangeRank& rank, const ExchangeStep& step,
                            cudaStream_t stream);
cudaError_t SealAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step,
                               cudaStream_t stream);
// `answers`, `out`: as CombineLowLatency takes them.
cudaError_t WriteAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step,
                                const std::uint16_t* answers, cudaStream_t stream);
cudaError_t AddAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step,
                              std::uint16_t* out, cudaStream_t stream);
cudaError_t AddAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step, float* out,
                              cudaStream_t stream);

// A part of a message to or from `peer`: so many bytes of the outbox or of the heap.
struct MessagePart {
  int peer = 0;
  std::int64_t at = 0;
  std::int64_t bytes = 0;
};
class MessageParts {
 public:
  constexpr void Add(int peer, std::int64_t at, std::int64_t bytes) {
    parts_[static_cast<std::size_t>(count_++)] = {peer, at, bytes};
  }
  [[nodiscard]] constexpr const MessagePart* begin() const { return parts_.data(); }
  [[nodiscard]] constexpr const MessagePart* end() const { return parts_.data() + count_; }

 private:
  static constexpr int kOfPeer = 2;
  std::array<MessagePart, static_cast<std::size_t>(kOfPeer) * kExchangeRanksMax> parts_{};
  int count_ = 0;
};

// Both in ascending order of peers: what a rank sends to another, and what that one receives from
// it, are the same parts in the same order.
struct Messages {
  MessageParts sent;      // of the outbox
  MessageParts received;  // of the heap
};

// Table and rows of the sender; no rows to a rank without experts.
constexpr Messages RowMessages(const ExchangeRank& rank, int cover) {
  const ExchangeShape& shape = rank.shape;
  const ExchangeLayout& layout = rank.layout;
  const auto add = [&](int source, int to, int peer, MessageParts* parts) {
    parts->Add(peer, layout.Packet(shape, 0, source, 0, 0),
               std::int64_t{cover} * layout.packets * 16);
    if (!HasExperts(shape, to)) return;
    parts->Add(peer, layout.Row(shape, 0, source, 0), std::int64_t{cover} * layout.row_stride);
  };
  Messages messages;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer == rank.rank) continue;
    add(rank.rank, peer, peer, &messages.sent);
    add(peer, rank.rank, peer, &messages.received);
  }
  return messages;
}

// Answers of the sender; none of a rank without experts.
constexpr Messages AnswerMessages(const ExchangeRank& rank, int cover) {
  const ExchangeShape& shape = rank.shape;
  const ExchangeLayout& layout = rank.layout;
  const std::int64_t bytes = std::int64_t{cover} * layout.answer_stride;
  Messages messages;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer == rank.rank) continue;
    const std::int64_t answers = layout.Answer(shape, 0, peer, 0);
    if (HasExperts(shape, rank.rank)) messages.sent.Add(peer, answers, bytes);
    if (HasExperts(shape, peer)) messages.received.Add(peer, answers, bytes);
  }
  return messages;
}

// The header of the sender.
constexpr Messages SealMessages(const ExchangeRank& rank, int /*cover*/) {
  Messages messages;
  for (int peer = 0; peer < rank.shape.ranks; ++peer) {
    if (peer == rank.rank) continue;
    messages.sent.Add(peer, rank.layout.Header(rank.shape, 0, rank.rank), kHeaderBytes);
    messages.received.Add(peer, rank.layout.Header(rank.shape, 0, peer), kHeaderBytes);
  }
  return messages;
}

}  // namespace switchyard::cuda
