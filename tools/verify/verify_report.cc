#include "tools/verify/verify_report.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "examples/qwen3_moe/byte_tokenizer.h"

namespace switchyard::qwen3_moe {
namespace {

using Json = nlohmann::ordered_json;

// The text on one line. If a token is not a byte, all are printed as numbers.
std::string TextOf(const std::vector<std::int32_t>& ids) {
  const bool bytes =
      std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id < kByteVocabulary; });
  if (!bytes) return absl::StrCat("[", absl::StrJoin(ids, " "), "]");
  return absl::StrReplaceAll(Printable(DecodeBytes(ids)), {{"\n", "\\n"}, {"\t", "\\t"}});
}

// A refusal is not a wrong result, and a reader must not mistake it for one.
std::string Verdict(const BlockResult& block) {
  if (!block.refused.ok()) return "REFUSED";
  return block.passed ? "ok" : "FAIL";
}

// REQUIRES: whole > 0.
double Share(std::size_t part, std::size_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

void AppendBlocks(const VerifyReport& report, std::string& out) {
  if (report.blocks.empty()) return;
  // At least as wide as the column's head.
  std::size_t width = 4;
  std::size_t ties = 0;
  std::size_t other = 0;
  for (const BlockResult& block : report.blocks) {
    width = std::max(width, absl::CHexEscape(block.name).size());
    ties += block.near_ties;
    other += block.other_choice;
  }
  const int name_width = static_cast<int>(width);
  absl::StrAppendFormat(&out, "%-*s  layer   rows  pooled diff  worst row (row)      near ties  \n",
                        name_width, "name");
  for (const BlockResult& block : report.blocks) {
    absl::StrAppendFormat(&out, "%-*s  %5d  %5d", name_width, absl::CHexEscape(block.name),
                          block.layer.value, block.rows);
    // The numbers of a refused block are not valid, so their columns stay empty.
    if (block.refused.ok()) {
      absl::StrAppendFormat(&out, "     %8.2e   %8.2e %-9s  %9d", block.pooled_diff,
                            block.worst_row_diff, absl::StrCat("(", block.worst_row, ")"),
                            block.near_ties);
    } else {
      absl::StrAppendFormat(&out, "%46s", "");
    }
    absl::StrAppend(&out, "  ", Verdict(block), "\n");
  }
  absl::StrAppendFormat(&out, "bounds: pooled %.2g, each row %.2g", report.bounds.pooled_diff_max,
                        report.bounds.row_diff_max);
  if (report.routed_here) {
    absl::StrAppendFormat(&out,
                          "; %d row(s) with router logits k and k+1 within %.0e,\n"
                          "where either choice may match; %d matched with the other choice",
                          ties, report.bounds.near_tie, other);
  }
  absl::StrAppend(&out, "\n\n");
}

std::string TiesText(std::size_t ties, const VerifyBounds& bounds) {
  if (ties == 0) return "";
  return absl::StrFormat(", %d of them with another token whose golden logit is within %.2g", ties,
                         bounds.logit_tie);
}

void AppendTexts(const VerifyReport& report, std::string& out) {
  for (const TextResult& text : report.texts) {
    const std::string name = absl::CHexEscape(text.name);
    // A text without golden logits has no agreement to show.
    if (text.positions > 0) {
      absl::StrAppendFormat(&out, "%s: top-1 agrees at %d of %d positions%s\n", name, text.agreed,
                            text.positions, TiesText(text.ties, report.bounds));
    }
    if (!text.greedy.has_value()) continue;
    const GreedyResult& greedy = *text.greedy;
    absl::StrAppend(&out, name, ": greedy text after \"", TextOf(greedy.prompt), "\"\n  golden  \"",
                    TextOf(greedy.golden), "\"\n  ours    \"", TextOf(greedy.ours), "\"\n");
    if (greedy.difference.has_value()) {
      absl::StrAppendFormat(&out, "  first difference at position %d, logit gap %.3g\n",
                            greedy.difference->position, greedy.difference->logit_gap);
    } else {
      absl::StrAppend(&out, "  equal\n");
    }
  }
  // Share would divide by zero.
  if (report.positions > 0) {
    absl::StrAppendFormat(&out, "top-1 agreement %.2f %% of %d positions (at least %.4g %%)\n",
                          100 * Share(report.agreed, report.positions), report.positions,
                          100 * report.bounds.top1_agreement_min);
  }
}

void AppendSession(const VerifyReport& report, std::string& out) {
  absl::StrAppend(&out, "experts: ", report.experts.how, "\n");
  // Counted and predicted values side by side, because only the difference does not show its size.
  for (const WorkerReport& worker : report.experts.workers) {
    absl::StrAppendFormat(
        &out,
        "  worker %s over %s: rows %d of %d, bytes sent %d of %d, returned %d of %d, "
        "expert hits %d of %d%s\n",
        worker.worker, worker.path, worker.counted.rows, worker.predicted.rows,
        worker.counted.request_bytes, worker.predicted.request_bytes, worker.counted.reply_bytes,
        worker.predicted.reply_bytes, worker.counted.expert_hits, worker.predicted.expert_hits,
        worker.differences.empty() ? "" : "  FAIL");
  }
  if (!report.experts.not_compared.empty()) {
    absl::StrAppend(&out, "  rows of workers not compared: ", report.experts.not_compared, "\n");
  }
}

Json JsonOf(const BlockResult& block) {
  Json json = {{"name", absl::CHexEscape(block.name)},
               {"layer", block.layer.value},
               {"rows", block.rows},
               {"verdict", Verdict(block)}};
  if (!block.refused.ok()) {
    json["error"] = absl::CHexEscape(block.refused.message());
    json["reason"] = std::string(ReasonName(ReasonOf(block.refused)));
    return json;
  }
  json["pooled_diff"] = block.pooled_diff;
  json["worst_row_diff"] = block.worst_row_diff;
  json["worst_row"] = block.worst_row;
  json["near_ties"] = block.near_ties;
  json["near_ties_matched_by_other_choice"] = block.other_choice;
  return json;
}

// null where there is no difference, so that the key always exists.
Json JsonOf(const TextResult& text) {
  Json json = {{"name", absl::CHexEscape(text.name)},
               {"positions", text.positions},
               {"agreed", text.agreed},
               {"near_ties", text.ties}};
  // Escaped: a worker's text may hold any bytes.
  if (!text.refused.ok()) json["error"] = absl::CHexEscape(text.refused.message());
  if (!text.greedy.has_value()) return json;
  Json greedy = {{"prompt", TextOf(text.greedy->prompt)},
                 {"golden", TextOf(text.greedy->golden)},
                 {"ours", TextOf(text.greedy->ours)},
                 {"first_difference", nullptr}};
  if (text.greedy->difference.has_value()) {
    greedy["first_difference"] = {{"position", text.greedy->difference->position},
                                  {"logit_gap", text.greedy->difference->logit_gap}};
  }
  json["greedy"] = std::move(greedy);
  return json;
}

Json JsonOf(const WorkerCounts& counts) {
  return {{"rows", counts.rows},
          {"request_bytes", counts.request_bytes},
          {"reply_bytes", counts.reply_bytes},
          {"expert_hits", counts.expert_hits}};
}

Json JsonOf(const WorkerReport& worker) {
  return {{"worker", worker.worker},
          {"path", worker.path},
          {"predicted", JsonOf(worker.predicted)},
          {"counted", JsonOf(worker.counted)},
          {"differences", worker.differences}};
}

template <typename T>
Json Array(const std::vector<T>& items) {
  Json array = Json::array();
  for (const T& item : items) array.push_back(JsonOf(item));
  return array;
}

}  // namespace

std::string VerifyTable(const VerifyReport& report) {
  std::string out;
  AppendBlocks(report, out);
  AppendTexts(report, out);
  AppendSession(report, out);
  absl::StrAppend(&out, "answers: SHA-256 ", report.digest.ToHex(), "\n");
  for (const std::string& note : report.notes) absl::StrAppend(&out, "note: ", note, "\n");
  for (const std::string& failure : report.failures) absl::StrAppend(&out, "FAIL ", failure, "\n");
  absl::StrAppend(&out, report.passed() ? "verified: within bounds\n" : "NOT within bounds\n");
  return out;
}

std::string VerifyJson(const VerifyReport& report) {
  Json json = {
      {"verdict", report.passed() ? "pass" : "fail"},
      {"bounds",
       {{"pooled_diff", report.bounds.pooled_diff_max},
        {"row_diff", report.bounds.row_diff_max},
        {"near_tie", report.bounds.near_tie},
        {"logit_tie", report.bounds.logit_tie},
        {"top1_agreement", report.bounds.top1_agreement_min}}},
      {"blocks", Array(report.blocks)},
      {"texts", Array(report.texts)},
      {"top1",
       {{"positions", report.positions},
        {"agreed", report.agreed},
        {"near_ties", report.ties},
        {"agreement",
         report.positions == 0 ? Json(nullptr) : Json(Share(report.agreed, report.positions))}}},
      {"digest", report.digest.ToHex()},
      {"experts", report.experts.how},
      {"workers", Array(report.experts.workers)},
      {"workers_not_compared", report.experts.not_compared},
      {"notes", report.notes},
      {"failures", report.failures}};
  // Names and messages are escaped, but a worker's id may contain bytes that are not UTF-8. They
  // are replaced, because the library would throw otherwise.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace switchyard::qwen3_moe
