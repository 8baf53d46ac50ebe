// Rules about which files belong together: a test for each source, a build line for each source.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "tests/tidy/layers.h"
#include "tests/tidy/source_tree.h"

namespace switchyard::tidy {

// untested.tsv: source<TAB>the test file that covers it instead.
std::map<std::string, std::string> ParseUntested(const std::vector<std::string>& lines);

// Each .cc of a layer has tests/<its folder or one above it>/<its name>_test.cc, or a row in
// `untested` with a reason; a row that is no longer needed is reported too.
void CheckTestMirrorsSource(const SourceTree& tree, const Layers& layers,
                            const std::map<std::string, std::string>& untested,
                            std::vector<Finding>* findings);

// Each .cc is named, by its own name or a relative path, in some CMakeLists.txt.
void CheckSourcesAreBuilt(const SourceTree& tree, std::vector<Finding>* findings);

}  // namespace switchyard::tidy
