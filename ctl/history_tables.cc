#include "ctl/history_tables.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "ctl/json.h"
#include "report/text_table.h"
#include "services/convert/enum_words.h"

namespace switchyard::ctl {
namespace {

std::string ObjectText(const v1::Event& event) {
  return absl::StrCat(EnumWord(event.object()), "/", event.name());
}

// "45s", "12m", "3h", "2d": as exact as anybody compares ages by eye.
std::string AgeText(std::int64_t seconds) {
  if (seconds < 120) return absl::StrCat(seconds, "s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, "m");
  if (seconds < 172'800) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / 86'400, "d");
}

}  // namespace

std::string RevisionsTable(const v1::ListRevisionsResponse& list, std::size_t width) {
  if (list.revisions().empty()) {
    return absl::StrCat("Deployment ", list.deployment(), " has no revision so far.\n");
  }
  TextTable table(
      {"REVISION", "STATE", "EPOCH", "APPLIED", "MODEL", "CHECKPOINT", "WEIGHTS", "REMARK"});
  for (const v1::Revision& item : list.revisions()) {
    const std::string remark =
        item.rollback_to() == 0 ? "" : absl::StrCat("rollback to ", item.rollback_to());
    const bool both = !remark.empty() && !item.refusal().empty();
    table.Add({absl::StrCat(item.number()), EnumWord(item.state()),
               item.epoch() == 0 ? "" : absl::StrCat(item.epoch()),
               item.has_applied() ? TimeText(item.applied()) : "", item.spec().model(),
               item.spec().checkpoint(),
               // The start of the hash is enough to compare checkpoints by eye.
               absl::BytesToHexString(item.manifest_hash()).substr(0, 12),
               absl::StrCat(remark, both ? "; " : "", item.refusal())});
  }
  return table.Print("", width);
}

std::string EventsTable(const v1::ListEventsResponse& list, std::size_t width) {
  if (list.events().empty()) return "Nothing has happened so far.\n";
  TextTable table({"LAST", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"});
  for (const v1::Event& item : list.events()) {
    table.Add({TimeText(item.last()), item.warning() ? "warning" : "normal", item.reason(),
               ObjectText(item), absl::StrCat(item.count()), item.message()});
  }
  return table.Print("", width);
}

std::string EventLine(const v1::Event& event) {
  return absl::StrCat(TimeText(event.last()), "  ", event.warning() ? "warning" : "normal", "  ",
                      event.reason(), "  ", ObjectText(event), "  ", event.message(), "\n");
}

namespace {

// "engine 0 of 2, 4 ranks", "engine 1 of 2, 2 ranks, its own with rank-1"
std::string GroupText(const v1::Session& session) {
  if (!session.has_group()) return "";
  const v1::GroupOptions& group = session.group();
  const auto source = static_cast<int>(group.source());
  const std::string host = source < group.hosts_size() ? group.hosts(source) : "";
  return absl::StrCat(group.name(), group.name().empty() ? "" : " ", group.source(), " of ",
                      group.sources(), ", ", session.ranks(), " ranks",
                      host.empty() ? "" : ", its own with ", host);
}

}  // namespace

std::string SessionsTable(const v1::ListSessionsResponse& list) {
  if (list.sessions().empty()) return "There are no sessions.\n";
  TextTable table({"NAME", "DEPLOYMENT", "PHASE", "MODE", "SOURCE", "BINDING", "GROUP", "EPOCH",
                   "AGE", "PEER"});
  for (const v1::Session& item : list.sessions()) {
    table.Add({item.name(), item.deployment(), EnumWord(item.phase()), EnumWord(item.mode()),
               EnumWord(item.source()), EnumWord(item.binding()), GroupText(item),
               absl::StrCat(item.epoch()), AgeText(item.age().seconds()), item.peer()});
  }
  return table.Print();
}

}  // namespace switchyard::ctl
