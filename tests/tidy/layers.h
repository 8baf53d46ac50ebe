// Who may include whom: cmake/LAYERS for our own folders, vendor_headers.tsv for everybody else's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "tests/tidy/source_tree.h"

namespace switchyard::tidy {

struct Include {
  std::string header;
  bool quoted = false;
  int line = 0;
};
std::vector<Include> IncludesOf(const SourceFile& file);

// name -> the names that it uses
using Uses = std::map<std::string, std::set<std::string>>;
// One chain {a, b, ..., a} of names that use each other; empty when there is none. The same chain
// for the same `uses`.
std::vector<std::string> FindCircle(const Uses& uses);

// cmake/LAYERS as a table: layer -> the layers that it may use.
class Layers {
 public:
  // Lines of cmake/LAYERS; comments and blank lines are ignored.
  explicit Layers(const std::vector<std::string>& lines);

  // The longest layer that holds `path`; empty for tests, bench and whatever else stands above.
  [[nodiscard]] std::string LayerOf(absl::string_view path) const;
  // True when files of `layer` may include files of `used`. What stands above may include all.
  [[nodiscard]] bool MayUse(const std::string& layer, const std::string& used) const;
  // One chain of layers that use each other; empty when there is none.
  [[nodiscard]] std::vector<std::string> FindCircle() const;

 private:
  std::map<std::string, std::vector<std::string>> uses_;
};

// A row of vendor_headers.tsv: headers that begin with `prefix` may be included only by files
// whose path begins with one of `allowed`.
struct VendorRule {
  std::string prefix;
  std::vector<std::string> allowed;
};
std::vector<VendorRule> ParseVendorRules(const std::vector<std::string>& lines);

// Every #include of our own: written from the root, of a file that exists, of an allowed layer.
void CheckLayers(const SourceTree& tree, const Layers& layers, std::vector<Finding>* findings);

// Every #include of a vendor's header stands where vendor_headers.tsv allows it.
void CheckVendorHeaders(const SourceTree& tree, const std::vector<VendorRule>& rules,
                        std::vector<Finding>* findings);

}  // namespace switchyard::tidy
