#include "worker/routing/request_codec.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian words");

// Writes words one after the other; the slot may be another process's memory, so it never reads.
class WordWriter {
 public:
  explicit WordWriter(std::byte* to) : to_(to) {}
  template <typename T>
  void Put(T value) {
    static_assert(sizeof(T) == sizeof(std::uint32_t));
    std::memcpy(to_, &value, sizeof(T));
    to_ += sizeof(T);
  }

 private:
  std::byte* to_;
};

void WriteNormal(const RequestContent& content, WordWriter writer) {
  const auto top_k = static_cast<std::size_t>(content.top_k);
  for (const PlannedRow& row : content.rows) {
    writer.Put(row.token);
    const std::size_t first = row.token * top_k;
    for (std::size_t pair = first; pair < first + top_k; ++pair) {
      // Other workers' experts are left out: this worker could do nothing with them.
      const bool here = content.worker_of_pair[pair] == content.worker.value;
      writer.Put(here ? content.slot_of_pair[pair] : -1);
      writer.Put(here ? content.weights[pair] : 0.0F);
    }
  }
}

void WriteLowLatency(const RequestContent& content, WordWriter writer) {
  for (const std::uint32_t count : content.slot_counts) writer.Put(count);
  for (const PlannedRow& row : content.rows) {
    writer.Put(row.token);
    // The slot follows from the counts.
    writer.Put(row.k);
  }
}

absl::Status Malformed(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kFrame, what);
}

absl::Status MalformedRow(std::uint32_t row, std::uint32_t token, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kFrame,
                   absl::StrFormat("request row %d (token %d): %s", row, token, what),
                   {{"row", absl::StrCat(row)}, {"token", absl::StrCat(token)}});
}

absl::Status CheckNormal(const RequestView& view) {
  for (std::uint32_t row = 0; row < view.rows(); ++row) {
    for (std::int32_t k = 0; k < view.top_k(); ++k) {
      const std::int32_t slot = view.slot(row, k);
      if (slot < -1 || slot >= view.local_slots()) {
        return MalformedRow(row, view.token(row),
                            absl::StrFormat("slot %d at k %d; the worker has slots 0 to %d", slot,
                                            k, view.local_slots() - 1));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLowLatency(const RequestView& view) {
  // In 64 bits: forged counts could wrap around 32 to the right sum.
  std::uint64_t sum = 0;
  for (const std::uint32_t count : view.slot_counts()) sum += count;
  if (sum != view.rows()) {
    return Malformed(
        absl::StrFormat("the slots' counts sum to %d, not to the %d rows of the "
                        "request",
                        sum, view.rows()));
  }
  for (std::uint32_t row = 0; row < view.rows(); ++row) {
    if (view.k(row) >= static_cast<std::uint32_t>(view.top_k())) {
      return MalformedRow(row, view.token(row),
                          absl::StrFormat("k %d of top-%d", view.k(row), view.top_k()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void WriteRequestMetadata(DispatchMode mode, const RequestContent& content,
                          std::span<std::byte> out) {
  if (mode == DispatchMode::kNormal) {
    WriteNormal(content, WordWriter(out.data()));
  } else {
    WriteLowLatency(content, WordWriter(out.data()));
  }
}

absl::Status ParseRequestMetadata(std::span<const std::uint32_t> words,
                                  const RequestGeometry& geometry, RequestView* out) {
  const bool normal = geometry.mode == DispatchMode::kNormal;
  const auto head = normal ? std::size_t{0} : static_cast<std::size_t>(geometry.local_slots);
  out->words_per_row_ = normal ? 1 + 2 * static_cast<std::size_t>(geometry.top_k) : 2;
  out->mode_ = geometry.mode;
  out->rows_ = geometry.rows;
  out->top_k_ = geometry.top_k;
  out->local_slots_ = geometry.local_slots;
  out->words_ = words.data();
  out->row_words_ = words.data() + head;
  if (geometry.rows == 0) return Malformed("a request carries at least one row");
  // Before any row is read.
  if (words.size() != head + out->words_per_row_ * geometry.rows) {
    return Malformed(
        absl::StrFormat("%d words of metadata do not hold %d rows", words.size(), geometry.rows));
  }
  return normal ? CheckNormal(*out) : CheckLowLatency(*out);
}

std::int32_t RoutingWidth(DispatchMode mode, std::int32_t top_k) {
  return mode == DispatchMode::kNormal ? top_k : 1;
}

void ExpandRouting(const RequestView& request, std::span<std::int32_t> slots,
                   std::span<float> weights) {
  std::size_t at = 0;
  if (request.mode() == DispatchMode::kLowLatency) {
    for (std::int32_t slot = 0; slot < request.local_slots(); ++slot) {
      const std::uint32_t count = request.slot_counts()[static_cast<std::size_t>(slot)];
      for (std::uint32_t i = 0; i < count; ++i) slots[at++] = slot;
    }
    return;
  }
  for (std::uint32_t row = 0; row < request.rows(); ++row) {
    for (std::int32_t k = 0; k < request.top_k(); ++k, ++at) {
      slots[at] = request.slot(row, k);
      weights[at] = request.weight(row, k);
    }
  }
}

}  // namespace switchyard
