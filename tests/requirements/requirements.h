// Which tests cover which requirement, held against what a test run really ran.
//
// tests/requirements.tsv maps each requirement of docs/REQUIREMENTS.md to its use and to names of
// tests. A '*' in a name stands for any text, so the name stands for every test that matches. The
// run is ctest's own JUnit report.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard::requirements {

// Who reaches the code that meets a requirement.
enum class Use {
  kServed,     // a deployment
  kLibrary,    // tests only; the parts in Row::callers will call it
  kReference,  // it is code of the tests, which compare the product with it
};

struct Row {
  std::string requirement;  // "R48"
  Use use = Use::kServed;
  std::vector<std::string> callers;  // for kLibrary: at least one, such as "worker/collective"
  std::vector<std::string> tests;
};

// A line is "R<n><TAB>use<TAB>test[, test...]", where use is "served", "reference" or
// "library: part[, part...]". Errors: kInvalidArgument naming the line that has another form, or a
// requirement for the second time.
absl::StatusOr<std::vector<Row>> ParseRequirements(absl::string_view text);

enum class Outcome { kPassed, kFailed, kSkipped, kNotRun };

// Test name -> outcome, from `ctest --output-junit`. Errors: kInvalidArgument when it is not one.
absl::StatusOr<std::map<std::string, Outcome>> ParseJunit(absl::string_view xml);

// The requirements that docs/REQUIREMENTS.md, whose text is `page`, does not leave open, in order.
std::vector<std::string> WantedOf(absl::string_view page);

struct Report {
  // One line each: a listed test is absent, skipped or failed, or its requirement is not wanted.
  std::vector<std::string> problems;
  std::vector<std::string> missing;  // wanted requirements without a row
};
Report Check(const std::vector<Row>& rows, const std::vector<std::string>& wanted,
             const std::map<std::string, Outcome>& run);

}  // namespace switchyard::requirements
