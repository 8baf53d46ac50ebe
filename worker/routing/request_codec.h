// The metadata of a request: what a source says about its rows, on the wire and read back.
//
// Layout in worker/transport/frame.h. The source writes it straight into a slot; the worker copies
// it out of the slot first (the peer can still write there), then checks and uses only the copy.
// Weights are not checked: a NaN weight makes its own row NaN, as a NaN in the row does.
//
// Allocates only for error texts. Pure; thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "core/dispatch_config.h"
#include "core/ids.h"
#include "worker/routing/dispatch_plan.h"
#include "worker/transport/frame.h"

namespace switchyard {

// Rows of one chunk for one worker, with the parts of the plan that the mode writes. Borrows.
struct RequestContent {
  std::span<const PlannedRow> rows;
  // low_latency: rows for each local slot; they sum to rows.size(), and rows are grouped so.
  std::span<const std::uint32_t> slot_counts;
  // normal: the plan's pairs and the router's weights, [tokens, top_k] of the whole step.
  WorkerOrdinal worker;
  std::int32_t top_k = 0;
  std::span<const std::int32_t> slot_of_pair;
  std::span<const std::int32_t> worker_of_pair;
  std::span<const float> weights;
};

// `out` holds exactly LayoutOfRequest(...).metadata_bytes. It is written once, in order.
void WriteRequestMetadata(DispatchMode mode, const RequestContent& content,
                          std::span<std::byte> out);

// A checked request. A view of the words it was parsed from.
class RequestView {
 public:
  // The geometry that the words were checked against.
  [[nodiscard]] DispatchMode mode() const { return mode_; }
  [[nodiscard]] std::uint32_t rows() const { return rows_; }
  [[nodiscard]] std::int32_t top_k() const { return top_k_; }
  [[nodiscard]] std::int32_t local_slots() const { return local_slots_; }
  // The row's token in its source's batch; the worker only repeats it in errors.
  [[nodiscard]] std::uint32_t token(std::uint32_t row) const { return RowWords(row)[0]; }

  // low_latency: [local_slots], and which of its token's experts a row is for.
  [[nodiscard]] std::span<const std::uint32_t> slot_counts() const {
    return {words_, static_cast<std::size_t>(local_slots_)};
  }
  [[nodiscard]] std::uint32_t k(std::uint32_t row) const { return RowWords(row)[1]; }

  // normal: the k-th expert of the row's token: its slot here or -1, and its weight.
  [[nodiscard]] std::int32_t slot(std::uint32_t row, std::int32_t k) const {
    return static_cast<std::int32_t>(RowWords(row)[1 + 2 * k]);
  }
  [[nodiscard]] float weight(std::uint32_t row, std::int32_t k) const {
    return std::bit_cast<float>(RowWords(row)[2 + 2 * k]);
  }

 private:
  friend absl::Status ParseRequestMetadata(std::span<const std::uint32_t> words,
                                           const RequestGeometry& geometry, RequestView* out);

  // In range for row < rows(): ParseRequestMetadata has checked the size.
  [[nodiscard]] const std::uint32_t* RowWords(std::uint32_t row) const {
    return row_words_ + static_cast<std::size_t>(row) * words_per_row_;
  }

  DispatchMode mode_ = DispatchMode::kNormal;
  std::uint32_t rows_ = 0;
  std::int32_t top_k_ = 0;
  std::int32_t local_slots_ = 0;
  std::size_t words_per_row_ = 0;
  // The copy as a whole, and where its rows begin: low_latency has the slot counts in front of
  // them.
  const std::uint32_t* words_ = nullptr;
  const std::uint32_t* row_words_ = nullptr;
};

// Checks the private copy `words` and lays `out` over it. Errors: kInvalidArgument (FRAME), with
// the row as metadata "row" where there is one: no rows, a slot outside the worker's, counts that
// do not sum to the rows, k outside the top-k, or a size that does not fit `geometry`.
absl::Status ParseRequestMetadata(std::span<const std::uint32_t> words,
                                  const RequestGeometry& geometry, RequestView* out);

// Slots that a device reads for each row of a request: its top-k in normal, else one.
std::int32_t RoutingWidth(DispatchMode mode, std::int32_t top_k);

// Writes the routing of `request` as devices read it: `slots` and, in normal, `weights` hold
// rows * RoutingWidth elements, row by row.
void ExpandRouting(const RequestView& request, std::span<std::int32_t> slots,
                   std::span<float> weights);

}  // namespace switchyard
