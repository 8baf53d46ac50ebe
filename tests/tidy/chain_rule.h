// How many classes a step passes on its way to the first encoded byte. tests/tidy/step_chain.tsv
// names them.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace switchyard::tidy {

struct ChainRow {
  std::string name;      // the class; of the first row the C function
  std::string file;      // where `function` has its body
  std::string function;  // in the function's head
  std::string call;      // in its body
};

std::vector<ChainRow> ParseChain(const std::vector<std::string>& lines);

// Each function makes the call of its row, and the rows after the first name at most four classes.
// Nothing for a tree without the first row's file.
void CheckStepChain(const SourceTree& tree, const std::vector<ChainRow>& chain,
                    std::vector<Finding>* findings);

}  // namespace switchyard::tidy
