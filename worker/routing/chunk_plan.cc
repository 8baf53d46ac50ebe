#include "worker/routing/chunk_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

// Chunk::count and the frame header's `chunks` have 16 bits.
constexpr std::uint32_t kChunksMax = std::numeric_limits<std::uint16_t>::max();

absl::Status TooManyChunks(const DispatchPlan& plan, std::uint32_t chunks, std::uint32_t rows) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
      absl::StrFormat("%d tokens make %d chunks of up to %d rows for one worker, and a step has at "
                      "most %d; split the batch, or use larger chunks",
                      plan.tokens, chunks, rows, kChunksMax),
      {{"have", absl::StrCat(chunks)}, {"limit", absl::StrCat(kChunksMax)}});
}

}  // namespace

absl::Status ChunkPlan::Build(const DispatchPlan& plan, std::span<const std::int32_t> local_slots,
                              std::uint32_t chunk_rows) {
  chunks_.clear();
  rows_.clear();
  slot_counts_.clear();
  // One range for each worker, also for those without rows.
  ranges_.assign(plan.workers.size(), {});
  slots_of_.assign(local_slots.begin(), local_slots.end());
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    const auto first = static_cast<std::uint32_t>(chunks_.size());
    if (plan.mode == DispatchMode::kNormal) {
      CutNormal(plan.workers[w], chunk_rows);
    } else {
      CutLowLatency(plan.workers[w], plan.tokens, local_slots[w], chunk_rows);
    }
    const auto last = static_cast<std::uint32_t>(chunks_.size());
    if (last - first > kChunksMax) return TooManyChunks(plan, last - first, chunk_rows);
    ranges_[w] = {first, last};
    for (std::uint32_t c = first; c < last; ++c) {
      // Numbered only now: a frame carries the count, which is not known before the last chunk is
      // cut.
      chunks_[c].index = static_cast<std::uint16_t>(c - first);
      chunks_[c].count = static_cast<std::uint16_t>(last - first);
    }
  }
  return absl::OkStatus();
}

std::span<const std::uint32_t> ChunkPlan::SlotCountsOf(const Chunk& chunk) const {
  if (slot_counts_.empty()) return {};
  return std::span(slot_counts_)
      .subspan(chunk.counts_begin,
               static_cast<std::size_t>(slots_of_[static_cast<std::size_t>(chunk.worker)]));
}

void ChunkPlan::CutNormal(const WorkerRows& worker, std::uint32_t chunk_rows) {
  const auto total = static_cast<std::uint32_t>(worker.rows.size());
  for (std::uint32_t begin = 0; begin < total; begin += chunk_rows) {
    const std::uint32_t rows = std::min(chunk_rows, total - begin);
    Chunk chunk;
    chunk.worker = worker.worker.value;
    chunk.row_begin = static_cast<std::uint32_t>(rows_.size());
    chunk.rows = rows;
    // A token has one row here, so any cut is between tokens.
    chunk.token_end = worker.rows[begin + rows - 1].token + 1;
    chunks_.push_back(chunk);
    rows_.insert(rows_.end(), worker.rows.begin() + begin, worker.rows.begin() + begin + rows);
  }
}

void ChunkPlan::CutLowLatency(const WorkerRows& worker, std::int32_t tokens, std::int32_t slots,
                              std::uint32_t chunk_rows) {
  if (worker.rows.empty()) return;
  rows_of_token_.assign(static_cast<std::size_t>(tokens), 0);
  // A token may have several rows, which must stay in one chunk.
  for (const PlannedRow& row : worker.rows) ++rows_of_token_[row.token];
  cursors_.assign(static_cast<std::size_t>(slots), 0);
  slot_ends_.assign(static_cast<std::size_t>(slots), 0);
  std::uint32_t begin = 0;
  for (std::size_t s = 0; s < static_cast<std::size_t>(slots); ++s) {
    cursors_[s] = begin;
    begin += worker.slot_counts[s];
    slot_ends_[s] = begin;
  }
  std::uint32_t pending = 0;
  for (std::uint32_t token = 0; token < static_cast<std::uint32_t>(tokens); ++token) {
    // A single token always fits: chunk_rows is at least the top-k.
    if (pending + rows_of_token_[token] > chunk_rows) {
      AddWindow(worker, token, pending);
      pending = 0;
    }
    pending += rows_of_token_[token];
  }
  if (pending > 0) AddWindow(worker, static_cast<std::uint32_t>(tokens), pending);
}

void ChunkPlan::AddWindow(const WorkerRows& worker, std::uint32_t token_end, std::uint32_t rows) {
  Chunk chunk;
  chunk.worker = worker.worker.value;
  chunk.row_begin = static_cast<std::uint32_t>(rows_.size());
  chunk.rows = rows;
  chunk.token_end = token_end;
  chunk.counts_begin = static_cast<std::uint32_t>(slot_counts_.size());
  chunks_.push_back(chunk);
  for (std::size_t s = 0; s < cursors_.size(); ++s) {
    const std::uint32_t first = cursors_[s];
    // A slot's rows ascend by token, so each window continues where the last one ended.
    while (cursors_[s] < slot_ends_[s] && worker.rows[cursors_[s]].token < token_end) {
      rows_.push_back(worker.rows[cursors_[s]++]);
    }
    slot_counts_.push_back(cursors_[s] - first);
  }
}

}  // namespace switchyard
