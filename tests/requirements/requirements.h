// Which tests cover which requirement, held against what a test run really ran.
//
// tests/requirements.tsv maps each requirement of the dispatch semantics to names of tests; a '*'
// in a name stands for any text, and the name for every test that fits. The run is ctest's own
// JUnit report.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard::requirements {

struct Row {
  std::string requirement;  // "R48"
  std::vector<std::string> tests;
};

// Errors: kInvalidArgument naming the line, when it is not "R<n><TAB>test[,test...]", names a
// requirement twice, or names none of the known ones.
absl::StatusOr<std::vector<Row>> ParseRequirements(absl::string_view text);

enum class Outcome { kPassed, kFailed, kSkipped, kNotRun };

// Test name -> outcome, from `ctest --output-junit`. Errors: kInvalidArgument when it is not one.
absl::StatusOr<std::map<std::string, Outcome>> ParseJunit(absl::string_view xml);

// Every requirement that this version has to cover, in order.
const std::vector<std::string>& Wanted();

struct Report {
  std::vector<std::string> problems;  // one line each: a listed test is absent, skipped or failed
  std::vector<std::string> missing;   // wanted requirements without a row
};
Report Check(const std::vector<Row>& rows, const std::map<std::string, Outcome>& run);

}  // namespace switchyard::requirements
