#include "quantize/report.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/quant_scheme.h"
#include "core/weight_manifest.h"

namespace switchyard::quantize {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string Print(const Json& json) {
  // Paths and names may hold bytes that are not UTF-8, for which the library would otherwise throw.
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

// Columns two blanks apart; rows have one length.
std::string Table(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&out, row[i]);
      if (i + 1 < row.size()) out.append(widths[i] - row[i].size() + 2, ' ');
    }
    out.push_back('\n');
  }
  return out;
}

// "0-2,5".
std::string LayersText(const std::vector<std::int32_t>& layers) {
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin < layers.size();) {
    std::size_t end = begin + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    runs.push_back(end - begin == 1 ? absl::StrCat(layers[begin])
                                    : absl::StrCat(layers[begin], "-", layers[end - 1]));
    begin = end;
  }
  return runs.empty() ? "-" : absl::StrJoin(runs, ",");
}

const char* SchemeNameOf(const WriteScheme& row) { return QuantSchemeInfoOf(row.scheme()).name; }

}  // namespace

std::string SchemesTable() {
  Rows rows{{"NAME", "SCHEME", "LAYOUT", "BITS", "CALIBRATION", "DESCRIPTION"}};
  for (const WriteScheme& row : WriteSchemes()) {
    rows.push_back({row.name, SchemeNameOf(row), QuantLayoutInfoOf(row.gate_up.layout).name,
                    absl::StrCat(row.weight_bits()), row.needs_calibration() ? "needed" : "-",
                    row.description});
  }
  return Table(rows);
}

std::string SchemesJson() {
  Json out = Json::array();
  for (const WriteScheme& row : WriteSchemes()) {
    Json one;
    one["name"] = row.name;
    one["scheme"] = SchemeNameOf(row);
    one["layout"] = QuantLayoutInfoOf(row.gate_up.layout).name;
    one["weight_bits"] = row.weight_bits();
    one["calibration"] = row.needs_calibration();
    one["description"] = row.description;
    out.push_back(std::move(one));
  }
  return Print(out);
}

std::string SummaryTable(const QuantizeSummary& summary) {
  // A checkpoint of empty tensors has no share.
  const double share = summary.bytes_before == 0 ? 0
                                                 : 100 * static_cast<double>(summary.bytes_after) /
                                                       static_cast<double>(summary.bytes_before);
  Rows rows{{"written", summary.out},
            {"scheme", absl::StrCat(summary.scheme->name, ": ", summary.scheme->description)},
            {"layers", absl::StrCat(LayersText(summary.quantized_layers), " quantized, ",
                                    LayersText(summary.bf16_layers), " in BF16")},
            {"experts", absl::StrCat(summary.experts)},
            {"tensors", absl::StrCat(summary.tensors)},
            {"bytes", absl::StrFormat("%s -> %s (%.1f %%)", BytesText(summary.bytes_before),
                                      BytesText(summary.bytes_after), share)}};
  for (const Projection projection : kAllProjections) {
    rows.push_back({absl::StrCat(ProjectionName(projection)),
                    absl::StrFormat("largest calc_diff of an expert's weights %.3g",
                                    summary.diff_max[static_cast<std::size_t>(projection)])});
  }
  // Counted only: a large checkpoint has hundreds. JSON lists them.
  rows.push_back({"files", absl::StrCat(summary.files.size())});
  if (!summary.left_out.empty()) {
    rows.push_back({"not copied", absl::StrJoin(summary.left_out, ", ")});
  }
  std::string out = Table(rows);
  for (const std::string& warning : summary.warnings) absl::StrAppend(&out, "! ", warning, "\n");
  return out;
}

std::string SummaryJson(const QuantizeSummary& summary) {
  Json out;
  out["scheme"] = summary.scheme->name;
  out["out"] = summary.out;
  out["layers"]["quantized"] = summary.quantized_layers;
  out["layers"]["bf16"] = summary.bf16_layers;
  out["experts"] = summary.experts;
  out["tensors"] = summary.tensors;
  out["bytes_before"] = summary.bytes_before;
  out["bytes_after"] = summary.bytes_after;
  for (const Projection projection : kAllProjections) {
    out["calc_diff_max"][std::string(ProjectionName(projection))] =
        summary.diff_max[static_cast<std::size_t>(projection)];
  }
  out["files"] = summary.files;
  out["left_out"] = summary.left_out;
  out["warnings"] = summary.warnings;
  return Print(out);
}

std::string ErrorText(const absl::Status& status) {
  std::string out = absl::StrCat("switchyard-quantize: ", status.message(), "\n");
  Rows rows{{"  code", absl::StatusCodeToString(status.code())},
            {"  reason", std::string(ReasonName(ReasonOf(status)))}};
  for (const auto& [key, value] : MetadataOf(status)) {
    // Empty metadata says nothing to a reader of a terminal; programs get it in JSON.
    if (!value.empty()) rows.push_back({absl::StrCat("  ", key), value});
  }
  return out + Table(rows);
}

// Programs read the same fields as gRPC clients do: code, reason, metadata.
std::string ErrorJson(const absl::Status& status) {
  Json out;
  Json& error = out["error"];
  error["code"] = absl::StatusCodeToString(status.code());
  error["reason"] = std::string(ReasonName(ReasonOf(status)));
  error["message"] = std::string(status.message());
  error["metadata"] = Json::object();
  for (const auto& [key, value] : MetadataOf(status)) error["metadata"][key] = value;
  return Print(out);
}

// The rate is over bytes, not tensors: scales are tiny and weights are not.
std::string ProgressLine(const QuantizeProgress& progress, Duration since_start) {
  const double seconds = std::chrono::duration<double>(since_start).count();
  std::string out =
      absl::StrFormat("tensors %d/%d  %s of %s", progress.tensors, progress.tensors_all,
                      BytesText(progress.bytes), BytesText(progress.bytes_all));
  // No rate yet: the first line would divide by zero.
  if (seconds <= 0 || progress.bytes == 0) return out;
  const double rate = static_cast<double>(progress.bytes) / seconds;
  const auto left = static_cast<double>(progress.bytes_all - progress.bytes);
  absl::StrAppendFormat(&out, "  %.1f MB/s  ETA %.0f s", rate / 1e6, left / rate);
  return out;
}

std::string BytesText(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 999.95 rounds to "1000.0" with one digit, so the next unit begins there.
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

}  // namespace switchyard::quantize
