#include "services/convert/work_times.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

#include "services/convert/enums.h"
#include "services/convert/plan.h"

namespace switchyard {
namespace {

void EncodeCounts(const HistogramCounts& in, v1::DurationCounts* out) {
  std::size_t used = in.buckets.size();
  while (used > 0 && in.buckets[used - 1] == 0) --used;
  for (std::size_t i = 0; i < used; ++i) out->add_buckets(in.buckets[i]);
  // Real sums are far below this, and one that a worker made up must not break the message.
  constexpr std::uint64_t kSumMax = INT64_MAX;
  EncodeTime(Duration(static_cast<std::int64_t>(std::min(in.sum, kSumMax))), out->mutable_sum());
}

void DecodeCounts(Decoder& at, const v1::DurationCounts& in, HistogramCounts* out) {
  if (in.buckets_size() > static_cast<int>(out->buckets.size())) {
    return at.Refuse("buckets",
                     absl::StrCat("must have at most ", out->buckets.size(), " entries"));
  }
  std::copy(in.buckets().begin(), in.buckets().end(), out->buckets.begin());
  Duration sum{};
  if (in.has_sum()) at.Time("sum", in.sum(), &sum);
  out->sum = static_cast<std::uint64_t>(sum.count());
}

}  // namespace

void Encode(const WorkTimes& in, v1::WorkTimes* out) {
  out->set_kind(EnumToProto(in.kind));
  EncodeCounts(in.step, out->mutable_step());
  if (in.queue.count() > 0) EncodeCounts(in.queue, out->mutable_queue());
}

void Encode(const std::vector<WorkTimes>& in,
            google::protobuf::RepeatedPtrField<v1::WorkTimes>* out) {
  for (const WorkTimes& times : in) Encode(times, out->Add());
}

void Decode(Decoder& at, const google::protobuf::RepeatedPtrField<v1::WorkTimes>& in,
            std::vector<WorkTimes>* out) {
  if (in.size() > kWorkTimesMax) {
    return at.Refuse("times", absl::StrCat("must have at most ", kWorkTimesMax, " entries"));
  }
  at.Each("times", in, out, [&](const v1::WorkTimes& item, WorkTimes* times) {
    // A worker of a later version may do work that this one has no name for.
    if (static_cast<int>(item.kind()) > v1::WorkKind_MAX) return;
    at.Enum("kind", item.kind(), &times->kind);
    if (std::count_if(in.begin(), in.end(), [&](const v1::WorkTimes& other) {
          return other.kind() == item.kind();
        }) > 1) {
      at.Refuse("kind", "must be another one than that of every other entry");
    }
    at.Sub("step", item.has_step(), [&] { DecodeCounts(at, item.step(), &times->step); });
    if (item.has_queue()) {
      at.Sub("queue", true, [&] { DecodeCounts(at, item.queue(), &times->queue); });
    }
  });
  // Also those that were left out above.
  std::erase_if(*out, IsEmpty);
}

}  // namespace switchyard
