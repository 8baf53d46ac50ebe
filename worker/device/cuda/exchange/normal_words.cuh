// The words of normal mode, by which a rank says how far it has come with a step. Each is 16 bytes
// of the header that every other rank keeps for it, ends with the step's tag, and vouches for all
// that the CTAs of the rank have written before.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/exchange_rank.h"

namespace switchyard::cuda {

// Which word of a header.
constexpr int kTableWord = 0;  // the table is there: tokens | cover << 16, shape
constexpr int kRowsWord = 1;
constexpr int kAnswersWord = 2;  // of the first chunk; one for each
static_assert((kAnswersWord + kAnswerChunksMax) * 16 <= kHeaderBytes);

class Words {
 public:
  __device__ __forceinline__ Words(const ExchangeRank& group, std::uint32_t number)
      : group_(group), number_(number), tag_(TagOf(number)) {}

  // This rank's table says so. A rank that gives this one up may have said before that it means
  // another step, which is then the reason.
  __device__ __forceinline__ void MeanStep(std::uint32_t hash, int cover) {
    hash_ = hash;
    cover_ = cover;
  }
  // Whether a table's word is of this rank's step.
  [[nodiscard]] __device__ __forceinline__ bool IsAlike(const uint4& said) const {
    return said.y == hash_ && static_cast<int>(said.x >> 16) == cover_;
  }

  // Every thread of a CTA calls it once it has written its part. True in one thread of the last of
  // `ctas`: all has been written then, and Tell vouches for it.
  __device__ __forceinline__ bool IsLast(std::uint32_t* counter, std::uint32_t ctas) const {
    __syncthreads();
    if (threadIdx.x != 0) return false;
    FenceSystem();
    if (AddAcquireRelease(counter, 1) != ctas - 1) return false;
    *counter = 0;  // for the next kernel
    FenceSystem();
    return true;
  }

  // Says `word` to every rank, to this one too, and to those that this rank has lost: they learn by
  // it that they are, because what it vouches for is then not theirs.
  __device__ __forceinline__ void Tell(int word, std::uint32_t sizes, std::uint32_t hash) const {
    const std::uint32_t lost = LoadRelaxed(&group_.state->lost);
    for (int to = 0; to < group_.shape.ranks; ++to) {
      StoreSystem(At(to, group_.rank, word), make_uint4(sizes, hash, lost, tag_));
    }
  }

  __device__ __forceinline__ void TellTable(const ExchangeStep& step, std::uint32_t hash) const {
    Tell(kTableWord, static_cast<std::uint32_t>(step.tokens | step.cover << 16), hash);
  }

  // Waits for `source` to say `word`; false where it does not in time, or has given up this rank. A
  // table counts from such a one too: it may say that the two mean different steps. What the word
  // vouches for is there then for this thread, and after a barrier for its CTA.
  __device__ __forceinline__ bool Await(int source, int word, uint4* said) const {
    if (!AwaitTag(source, word, said)) return false;
    FenceSystem();
    if (word == kTableWord || (said->z >> group_.rank & 1U) == 0) return true;
    Lose(group_, source, number_, ReasonOf(source));
    return false;
  }

  // The same with messages. False, too, once this rank has given the group up: then nothing that
  // has come counts, tables neither.
  __device__ __forceinline__ bool AwaitSeal(int source, int word, uint4* said) const {
    if (!AwaitTag(source, word, said)) return false;
    if ((LoadRelaxed(&group_.state->lost) >> source & 1U) != 0) return false;
    if ((said->z >> group_.rank & 1U) == 0) return true;
    Lose(group_, source, number_, ReasonOf(source));
    return false;
  }

  // With messages, by the first thread that comes after them, before any Await: once the host has
  // given up the group, they may be there in part only. Names a rank whose `word` is not there, if
  // there is such a one.
  __device__ __forceinline__ void GiveUpIfTold(int word) const {
    const std::uint32_t gone = LoadWord(&group_.report->gone);
    if (gone == 0) return;
    const std::uint32_t suspects = LoadWord(&group_.report->suspects);
    const std::uint32_t named = suspects != 0 ? suspects : gone;
    int rank = __ffs(static_cast<int>(named)) - 1;
    for (int source = group_.shape.ranks - 1; source >= 0; --source) {
      const bool may_be = (named >> source & 1U) != 0;
      if (may_be && LoadSystem(At(group_.rank, source, word)).w != tag_) rank = source;
    }
    Lose(group_, rank, number_, ExchangeFault::kTimeout, static_cast<std::uint32_t>(word + 1));
    // The others learn by this rank's next words that they must not rely on what it sends.
    atomicOr(&group_.state->lost, gone);
  }

 private:
  __device__ __forceinline__ bool AwaitTag(int source, int word, uint4* said) const {
    Patience patience;
    while (true) {
      *said = LoadSystem(At(group_.rank, source, word));
      if (said->w == tag_) return true;
      if (patience.Over(group_, source, number_, static_cast<std::uint32_t>(word + 1))) {
        return false;
      }
    }
  }
  // `source` has given this rank up.
  [[nodiscard]] __device__ __forceinline__ ExchangeFault ReasonOf(int source) const {
    const uint4 table = LoadSystem(At(group_.rank, source, kTableWord));
    const bool another = cover_ != 0 && table.w == tag_ && !IsAlike(table);
    return another ? ExchangeFault::kMismatch : ExchangeFault::kTimeout;
  }
  [[nodiscard]] __device__ __forceinline__ std::byte* At(int of, int source, int word) const {
    return group_.heaps[of] + group_.layout.Header(group_.shape, 0, source) + word * 16;
  }

  const ExchangeRank& group_;
  const std::uint32_t number_;
  const std::uint32_t tag_;
  std::uint32_t hash_ = 0;
  int cover_ = 0;  // 0: not known
};

}  // namespace switchyard::cuda
