// The memory that the ranks of a group on hosts exchange rows through (worker/device/exchange.h).
//
// Every rank has one heap, which all others map: they write into it, and the rank reads it.
//
//   group               what the group was made for, this rank, and the first fault
//   headers   [buffer][source]           step, cover and tokens of a source
//   answered  [buffer][expert rank]      step
//   answers   [buffer][expert rank][token]  the sum of that rank's experts, BF16; or
//             [buffer][token][choice]       the row of one expert, BF16
//   choices   [buffer][source][token][choice]  expert id and weight
//   rows      [buffer][source][token]    the row in the step's wire format, scales behind the data
//
// Choices and rows are there on ranks with experts only. A token's place is its number at its
// source, so that nobody counts before rows are written.
//
// Two buffers are used in turn. A step ends at a rank when the headers of all ranks have come. So a
// rank that begins step n + 2 has seen that all others have begun step n + 1, and have read all
// that they got for step n. The number of the step in a header or a flag says that all it stands
// for has been written (release, acquire); nothing is ever cleared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/format/bf16.h"
#include "core/format/dtype.h"
#include "worker/device/exchange.h"

namespace switchyard {

// Shared by processes, so no lock may hide in an atomic.
using SharedWord = std::atomic<std::uint64_t>;
static_assert(SharedWord::is_always_lock_free);

// All that ranks have to agree on.
struct GroupFacts {
  std::int32_t version = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::int32_t ranks = 0;
  std::int32_t expert_ranks = 0;
  std::int32_t tokens_max = 0;
  std::int32_t wire_dtype = 0;
  std::int32_t wire_scale = 0;
  std::int32_t wire_group = 0;
  std::int32_t unit = 0;

  friend bool operator==(const GroupFacts&, const GroupFacts&) = default;
};
GroupFacts FactsOf(const ExchangeSpec& spec);

struct alignas(64) GroupHeader {
  // Why steps are no results, of the earliest step that is known to be none (host_exchange.cc); 0
  // until then. Any rank writes it.
  SharedWord fault{0};
  GroupFacts facts;
  std::int32_t rank = 0;
};

struct alignas(64) SourceHeader {
  SharedWord sent{0};  // the step's number, from 1 on
  std::int32_t layer = 0;
  std::int32_t cover = 0;
  std::int32_t tokens = 0;
  // The formats of rows and sums (WireFormatCode), and the global scale of rows.
  std::int32_t formats = 0;
  float global_scale = 1;
};

struct alignas(64) AnsweredFlag {
  SharedWord step{0};  // from 1 on
};

struct ExchangeChoice {
  std::int32_t expert = 0;
  float weight = 0;
};

// Where everything lies in a heap. A value; the same on all ranks.
class HeapLayout {
 public:
  HeapLayout() = default;
  // REQUIRES: a spec that CheckExchange accepts.
  explicit HeapLayout(const ExchangeSpec& spec);

  // The size of the heap of a rank.
  [[nodiscard]] std::size_t bytes(std::int32_t rank) const {
    return rank < expert_ranks_ ? bytes_ : choices_;
  }
  // The largest row takes these.
  [[nodiscard]] const RowBytes& row_bytes() const { return row_bytes_; }

 private:
  friend class ExchangeHeap;

  std::size_t ranks_ = 0;
  std::int32_t expert_ranks_ = 0;
  std::size_t tokens_max_ = 0;
  std::size_t top_k_ = 0;
  RowBytes row_bytes_{};
  std::size_t row_stride_ = 0;
  std::size_t answer_stride_ = 0;
  // Offsets.
  std::size_t answered_ = 0;
  std::size_t answers_ = 0;
  std::size_t choices_ = 0;
  std::size_t rows_ = 0;
  std::size_t bytes_ = 0;
};

// One rank's heap as this process maps it. `step` counts from 1; it names the buffer.
class ExchangeHeap {
 public:
  ExchangeHeap() = default;
  ExchangeHeap(const HeapLayout* layout, std::byte* base) : layout_(layout), base_(base) {}

  [[nodiscard]] GroupHeader& group() const { return *At<GroupHeader>(0); }
  [[nodiscard]] SourceHeader& header(std::uint64_t step, std::int32_t source) const {
    return *At<SourceHeader>(sizeof(GroupHeader) + Place(step, source) * sizeof(SourceHeader));
  }
  [[nodiscard]] AnsweredFlag& answered(std::uint64_t step, std::int32_t rank) const {
    return *At<AnsweredFlag>(layout_->answered_ + Place(step, rank) * sizeof(AnsweredFlag));
  }
  // From an expert rank, with kPerWorker: BF16, or the row of a codec of sums.
  [[nodiscard]] Bf16* sum(std::uint64_t step, std::int32_t rank, std::int32_t token) const {
    const std::size_t place = Buffer(step) * static_cast<std::size_t>(layout_->expert_ranks_) +
                              static_cast<std::size_t>(rank);
    return AnswerAt(place * layout_->tokens_max_ + static_cast<std::size_t>(token));
  }
  // From an expert, with kPerExpert.
  [[nodiscard]] Bf16* answer(std::uint64_t step, std::int32_t token, std::size_t choice) const {
    const std::size_t place = Buffer(step) * layout_->tokens_max_ + static_cast<std::size_t>(token);
    return AnswerAt(place * layout_->top_k_ + choice);
  }
  // [top_k]
  [[nodiscard]] ExchangeChoice* choices(std::uint64_t step, std::int32_t source,
                                        std::int32_t token) const {
    return At<ExchangeChoice>(layout_->choices_ + Place(step, source, token) * layout_->top_k_ *
                                                      sizeof(ExchangeChoice));
  }
  [[nodiscard]] std::byte* row(std::uint64_t step, std::int32_t source, std::int32_t token) const {
    return base_ + layout_->rows_ + Place(step, source, token) * layout_->row_stride_;
  }

 private:
  static constexpr std::size_t kBuffers = 2;
  friend class HeapLayout;

  static std::size_t Buffer(std::uint64_t step) {
    return static_cast<std::size_t>(step % kBuffers);
  }
  [[nodiscard]] std::size_t Place(std::uint64_t step, std::int32_t rank) const {
    return Buffer(step) * layout_->ranks_ + static_cast<std::size_t>(rank);
  }
  [[nodiscard]] std::size_t Place(std::uint64_t step, std::int32_t rank, std::int32_t token) const {
    return Place(step, rank) * layout_->tokens_max_ + static_cast<std::size_t>(token);
  }
  [[nodiscard]] Bf16* AnswerAt(std::size_t place) const {
    return At<Bf16>(layout_->answers_ + place * layout_->answer_stride_);
  }
  template <typename T>
  [[nodiscard]] T* At(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  const HeapLayout* layout_ = nullptr;
  std::byte* base_ = nullptr;
};

// Errors: kInvalidArgument (BAD_SHAPE) for a group that hosts do not serve; kUnimplemented
// (UNSUPPORTED) for one by messages.
absl::Status CheckExchange(const ExchangeSpec& spec, std::int32_t rank);

}  // namespace switchyard
