#include "ctl/output/progress.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/amount_text.h"
#include "report/text_table.h"
#include "services/convert/enum_words.h"

namespace switchyard::ctl {
namespace {

using StagingList = google::protobuf::RepeatedPtrField<v1::Staging>;

// As the coordinator's own texts: shorter pauses are those between two experts.
constexpr std::int64_t kStillShown = 5;  // seconds

Duration TimeOf(const google::protobuf::Duration& left) {
  return std::chrono::seconds(left.seconds()) + std::chrono::nanoseconds(left.nanos());
}

std::string LeftText(const google::protobuf::Duration& left) { return TimeText(TimeOf(left)); }

// "nothing for 12 s", for Staging and for CheckpointReading; empty while it moves.
template <typename Proto>
std::string StillText(const Proto& of) {
  if (of.still().seconds() < kStillShown) return "";
  return absl::StrCat("nothing for ", TimeText(std::chrono::seconds(of.still().seconds())));
}

// EXPERTS, LOADED, RATE, LEFT and NOTE.
void AddCells(const v1::Staging& one, std::vector<std::string>* cells) {
  const v1::StagingReport& progress = one.progress();
  const bool begun = one.step() >= v1::STAGING_STEP_LOADING;
  const bool loads = one.step() == v1::STAGING_STEP_LOADING;
  const bool has_counts = begun && progress.experts() > 0;
  cells->push_back(has_counts ? absl::StrCat(progress.experts_done(), " of ", progress.experts())
                              : "");
  cells->push_back(has_counts ? ShareText(static_cast<std::int64_t>(progress.bytes_done()),
                                          static_cast<std::int64_t>(progress.bytes()))
                              : "");
  const bool moves = loads && one.bytes_per_second() > 0;
  cells->push_back(moves ? RateText(static_cast<std::int64_t>(one.bytes_per_second())) : "");
  cells->push_back(loads && one.has_left() ? LeftText(one.left()) : "");
  cells->push_back(loads && one.waits_for().empty() ? StillText(one) : one.waits_for());
}

std::string Print(const TextTable& table) { return table.rows() == 0 ? "" : table.Print(); }

}  // namespace

std::string StagingByWorker(const StagingList& staging) {
  TextTable table({"WORKER", "STEP", "EXPERTS", "LOADED", "RATE", "LEFT", "NOTE"});
  for (const v1::Staging& one : staging) {
    std::vector<std::string> cells{one.worker(), EnumWord(one.step())};
    AddCells(one, &cells);
    table.Add(std::move(cells));
  }
  return Print(table);
}

std::string StagingByEpoch(const StagingList& staging) {
  TextTable table({"PREPARES", "EPOCH", "STEP", "EXPERTS", "LOADED", "RATE", "LEFT", "NOTE"});
  for (const v1::Staging& one : staging) {
    std::vector<std::string> cells{one.progress().deployment(),
                                   absl::StrCat(one.progress().epoch()), EnumWord(one.step())};
    AddCells(one, &cells);
    table.Add(std::move(cells));
  }
  return Print(table);
}

std::string ReadingText(const v1::CheckpointReading& reading) {
  std::vector<std::string> parts;
  if (reading.bytes() == 0) {
    parts.emplace_back("not begun");
  } else {
    parts.push_back(ShareText(static_cast<std::int64_t>(reading.bytes_done()),
                              static_cast<std::int64_t>(reading.bytes())));
    const std::string still = StillText(reading);
    if (!still.empty()) {
      parts.push_back(still);
    } else if (reading.bytes_per_second() > 0) {
      parts.push_back(RateText(static_cast<std::int64_t>(reading.bytes_per_second())));
    }
    if (reading.has_left()) parts.push_back(absl::StrCat(LeftText(reading.left()), " left"));
  }
  return absl::StrCat(reading.checkpoint(), ": ", absl::StrJoin(parts, ", "),
                      reading.dry_run() ? " (dry run)" : "");
}

std::optional<ProgressFacts> ProgressOf(const v1::Deployment& deployment) {
  ProgressFacts facts;
  const std::string& name = deployment.spec().name();
  if (deployment.has_reading() && !deployment.reading().dry_run()) {
    const v1::CheckpointReading& reading = deployment.reading();
    if (reading.bytes() == 0) return std::nullopt;
    facts = {.what = absl::StrCat(name, ": reading ", reading.checkpoint()),
             .bytes_done = static_cast<std::int64_t>(reading.bytes_done()),
             .bytes = static_cast<std::int64_t>(reading.bytes()),
             .bytes_per_second = static_cast<std::int64_t>(reading.bytes_per_second()),
             .left = std::nullopt};
    if (reading.has_left()) facts.left = TimeOf(reading.left());
    return facts;
  }
  int loading = 0;
  for (const v1::Staging& one : deployment.staging()) {
    facts.bytes_done += static_cast<std::int64_t>(one.progress().bytes_done());
    facts.bytes += static_cast<std::int64_t>(one.progress().bytes());
    if (one.step() != v1::STAGING_STEP_LOADING) continue;
    ++loading;
    facts.bytes_per_second += static_cast<std::int64_t>(one.bytes_per_second());
    if (one.has_left()) facts.left = std::max(facts.left.value_or(Duration{}), TimeOf(one.left()));
  }
  if (loading == 0 || facts.bytes == 0) return std::nullopt;
  facts.what = absl::StrCat(name, ": loading on ", CountText(loading, "worker"));
  return facts;
}

}  // namespace switchyard::ctl
