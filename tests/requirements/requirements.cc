#include "tests/requirements/requirements.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace switchyard::requirements {
namespace {

absl::Status BadLine(std::size_t index, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", index + 1, ": ", what));
}

std::vector<std::string> Names(absl::string_view list) {
  std::vector<std::string> names = absl::StrSplit(list, ',', absl::SkipWhitespace());
  for (std::string& name : names) name = std::string(absl::StripAsciiWhitespace(name));
  return names;
}

// False when `text` is not "served", "reference" or "library: " with a part.
bool ReadUse(absl::string_view text, Row* row) {
  row->use = text == "reference" ? Use::kReference : Use::kServed;
  if (text == "served" || text == "reference") return true;
  if (!absl::ConsumePrefix(&text, "library:")) return false;
  row->use = Use::kLibrary;
  row->callers = Names(text);
  return !row->callers.empty();
}

// "R48".
bool IsNumber(absl::string_view text) {
  return text.size() > 1 && text[0] == 'R' && text[1] != '0' &&
         std::all_of(text.begin() + 1, text.end(), absl::ascii_isdigit);
}

// The value of `name="..."` in an XML tag; empty when it is not there.
std::string Attribute(absl::string_view tag, absl::string_view name) {
  const std::string key = absl::StrCat(" ", name, "=\"");
  const std::size_t begin = tag.find(key);
  if (begin == absl::string_view::npos) return "";
  const absl::string_view rest = tag.substr(begin + key.size());
  return absl::StrReplaceAll(
      rest.substr(0, rest.find('"')),
      {{"&quot;", "\""}, {"&apos;", "'"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}});
}

Outcome OutcomeOf(absl::string_view status, absl::string_view body) {
  if (status == "run") return Outcome::kPassed;
  if (status == "fail") return Outcome::kFailed;
  return absl::StrContains(body, "<skipped") ? Outcome::kSkipped : Outcome::kNotRun;
}

// True when `text` is `pattern` with each '*' replaced by some text.
bool MatchesGlob(absl::string_view pattern, absl::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == absl::string_view::npos) return text == pattern;
  if (!absl::StartsWith(text, pattern.substr(0, star))) return false;
  const absl::string_view rest = pattern.substr(star + 1);
  for (std::size_t skipped = star; skipped <= text.size(); ++skipped) {
    if (MatchesGlob(rest, text.substr(skipped))) return true;
  }
  return false;
}

// The tests of the run that `name` stands for.
std::vector<std::string> Matches(const std::string& name,
                                 const std::map<std::string, Outcome>& run) {
  std::vector<std::string> found;
  for (const auto& [test, outcome] : run) {
    if (MatchesGlob(name, test)) found.push_back(test);
  }
  return found;
}

const char* Complaint(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return nullptr;
    case Outcome::kFailed:
      return "failed";
    case Outcome::kSkipped:
      return "was skipped";
    case Outcome::kNotRun:
      break;
  }
  return "did not run";
}

}  // namespace

std::vector<std::string> WantedOf(absl::string_view page) {
  std::vector<std::string> wanted;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, '|');
    if (cells.size() < 5) continue;
    const absl::string_view number = absl::StripAsciiWhitespace(cells[1]);
    const absl::string_view state = absl::StripAsciiWhitespace(cells[cells.size() - 2]);
    if (IsNumber(number) && !absl::StartsWith(state, "open")) wanted.emplace_back(number);
  }
  return wanted;
}

absl::StatusOr<std::vector<Row>> ParseRequirements(absl::string_view text) {
  std::vector<Row> rows;
  std::set<std::string> seen;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty() || lines[i][0] == '#') continue;
    const std::vector<std::string> columns = absl::StrSplit(lines[i], '\t');
    if (columns.size() != 3) {
      return BadLine(i, "want a requirement, its use and test names, with tabs between them");
    }
    Row row;
    row.requirement = columns[0];
    row.tests = Names(columns[2]);
    if (!ReadUse(columns[1], &row)) {
      return BadLine(i, absl::StrCat(row.requirement, ": use is \"", columns[1],
                                     "\"; want \"served\", \"reference\", or \"library: \" and "
                                     "the part that will call it"));
    }
    if (row.tests.empty()) return BadLine(i, absl::StrCat(row.requirement, " names no test"));
    if (!IsNumber(row.requirement)) {
      return BadLine(i, absl::StrCat(row.requirement, " is not the number of a requirement"));
    }
    if (!seen.insert(row.requirement).second) {
      return BadLine(i, absl::StrCat(row.requirement, " has two lines; join them"));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::StatusOr<std::map<std::string, Outcome>> ParseJunit(absl::string_view xml) {
  if (!absl::StrContains(xml, "<testsuite")) {
    return absl::InvalidArgumentError("not a JUnit report; make one with ctest --output-junit");
  }
  constexpr absl::string_view kOpen = "<testcase ";
  std::map<std::string, Outcome> run;
  for (std::size_t at = xml.find(kOpen); at != absl::string_view::npos;) {
    const std::size_t next = xml.find(kOpen, at + kOpen.size());
    const absl::string_view element =
        xml.substr(at, next == absl::string_view::npos ? absl::string_view::npos : next - at);
    const absl::string_view tag = element.substr(0, element.find('>'));
    run[Attribute(tag, "name")] = OutcomeOf(Attribute(tag, "status"), element);
    at = next;
  }
  return run;
}

Report Check(const std::vector<Row>& rows, const std::vector<std::string>& wanted,
             const std::map<std::string, Outcome>& run) {
  Report report;
  std::set<std::string> covered;
  for (const Row& row : rows) {
    covered.insert(row.requirement);
    if (std::find(wanted.begin(), wanted.end(), row.requirement) == wanted.end()) {
      report.problems.push_back(
          absl::StrCat(row.requirement, ": not a requirement that docs/REQUIREMENTS.md has met"));
    }
    for (const std::string& name : row.tests) {
      const std::vector<std::string> tests = Matches(name, run);
      if (tests.empty()) {
        report.problems.push_back(
            absl::StrCat(row.requirement, ": no test ", name,
                         " in this run; correct tests/requirements.tsv or bring the test back"));
      }
      for (const std::string& test : tests) {
        const char* complaint = Complaint(run.at(test));
        if (complaint != nullptr) {
          report.problems.push_back(absl::StrCat(row.requirement, ": ", test, " ", complaint));
        }
      }
    }
  }
  for (const std::string& requirement : wanted) {
    if (!covered.contains(requirement)) report.missing.push_back(requirement);
  }
  return report;
}

}  // namespace switchyard::requirements
