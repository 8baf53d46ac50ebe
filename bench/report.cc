#include "bench/report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace switchyard::bench {

void Report::Add(Figure figure) {
  std::string bound = "-";
  if (figure.at_most) bound = absl::StrFormat("<= %g", *figure.at_most);
  if (figure.at_least) bound = absl::StrFormat(">= %g", *figure.at_least);
  const bool held = figure.at_most || figure.at_least;
  absl::PrintF("%-84s %9.3f %-5s %-8s %-6s %s\n", figure.name, figure.value, figure.unit, bound,
               !held          ? ""
               : figure.met() ? "met"
                              : "MISSED",
               figure.floor);
  std::fflush(stdout);
  figures_.push_back(std::move(figure));
}

bool Report::all_met() const {
  return std::ranges::all_of(figures_, [](const Figure& figure) { return figure.met(); });
}

std::string Report::Json() const {
  const auto one = [](std::string* out, const Figure& figure) {
    absl::StrAppendFormat(out, "{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"", figure.name,
                          figure.value, figure.unit);
    if (figure.at_most) absl::StrAppendFormat(out, ",\"at_most\":%g", *figure.at_most);
    if (figure.at_least) absl::StrAppendFormat(out, ",\"at_least\":%g", *figure.at_least);
    absl::StrAppendFormat(out, ",\"met\":%s,\"floor\":\"%s\"}", figure.met() ? "true" : "false",
                          figure.floor);
  };
  return absl::StrCat("{\"figures\":[", absl::StrJoin(figures_, ",", one), "]}");
}

}  // namespace switchyard::bench
