#include "tests/tidy/layers.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace switchyard::tidy {
namespace {

bool IsThirdParty(absl::string_view header) {
  constexpr std::array<const char*, 11> kFolders{"CLI",  "absl",   "gmock",   "google",
                                                 "grpc", "grpcpp", "gtest",   "nlohmann",
                                                 "re2",  "spdlog", "yaml-cpp"};
  return std::any_of(kFolders.begin(), kFolders.end(),
                     [header](const char* folder) { return IsBelow(header, folder); });
}

// Headers made from proto/ have no file in the tree.
bool IsGenerated(absl::string_view header) {
  return absl::EndsWith(header, ".pb.h") && !IsThirdParty(header);
}

}  // namespace

std::vector<Include> IncludesOf(const SourceFile& file) {
  std::vector<Include> includes;
  for (std::size_t i = 0; i < file.code.size(); ++i) {
    absl::string_view text = file.code[i];
    if (!absl::StartsWith(text, "#include")) continue;
    const std::size_t open = text.find_first_of("\"<");
    if (open == absl::string_view::npos) continue;
    const bool quoted = text[open] == '"';
    const std::size_t close = text.find(quoted ? '"' : '>', open + 1);
    if (close == absl::string_view::npos) continue;
    includes.push_back(
        {std::string(text.substr(open + 1, close - open - 1)), quoted, static_cast<int>(i) + 1});
  }
  return includes;
}

std::vector<std::string> FindCircle(const Uses& uses) {
  // Takes away names that use nothing that is left; what cannot be taken away is on a circle.
  std::set<std::string> left;
  for (const auto& [name, used] : uses) left.insert(name);
  const auto next_on_circle = [&uses,
                               &left](const std::string& name) -> std::optional<std::string> {
    for (const std::string& used : uses.at(name)) {
      if (left.contains(used)) return used;
    }
    return std::nullopt;
  };
  for (bool taken = true; taken;) {
    taken = std::erase_if(left, [&next_on_circle](const std::string& name) {
              return !next_on_circle(name).has_value();
            }) > 0;
  }
  if (left.empty()) return {};
  std::vector<std::string> chain{*left.begin()};
  while (std::count(chain.begin(), chain.end(), chain.back()) == 1) {
    chain.push_back(*next_on_circle(chain.back()));
  }
  chain.erase(chain.begin(), std::find(chain.begin(), chain.end(), chain.back()));
  return chain;
}

Layers::Layers(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (halves.size() != 2) continue;
    uses_[std::string(absl::StripAsciiWhitespace(halves[0]))] =
        absl::StrSplit(halves[1], ' ', absl::SkipWhitespace());
  }
}

std::string Layers::LayerOf(absl::string_view path) const {
  std::string best;
  for (const auto& [layer, used] : uses_) {
    if (IsBelow(path, layer) && layer.size() > best.size()) best = layer;
  }
  return best;
}

bool Layers::MayUse(const std::string& layer, const std::string& used) const {
  if (layer.empty() || layer == used) return true;
  const std::vector<std::string>& allowed = uses_.at(layer);
  return std::find(allowed.begin(), allowed.end(), used) != allowed.end();
}

std::vector<std::string> Layers::FindCircle() const {
  Uses uses;
  for (const auto& [layer, used] : uses_) uses[layer] = {used.begin(), used.end()};
  return tidy::FindCircle(uses);
}

std::vector<VendorRule> ParseVendorRules(const std::vector<std::string>& lines) {
  std::vector<VendorRule> rules;
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> columns = absl::StrSplit(line, '\t', absl::SkipEmpty());
    if (columns.size() != 2) continue;
    rules.push_back({columns[0], absl::StrSplit(columns[1], ' ', absl::SkipEmpty())});
  }
  return rules;
}

void CheckLayers(const SourceTree& tree, const Layers& layers, std::vector<Finding>* findings) {
  for (const SourceFile& file : tree.files()) {
    const std::string layer = layers.LayerOf(file.path);
    for (const Include& include : IncludesOf(file)) {
      if (!include.quoted || IsThirdParty(include.header)) continue;
      const std::string used =
          IsGenerated(include.header) ? "proto" : layers.LayerOf(include.header);
      if (!IsGenerated(include.header) && tree.Find(include.header) == nullptr) {
        findings->push_back({file.path, include.line, "layers",
                             absl::StrCat("no file ", include.header,
                                          " in the repository; include ours from the root, as in "
                                          "\"core/ids.h\", and the system's with <>")});
      } else if (!layer.empty() && used.empty()) {
        findings->push_back({file.path, include.line, "layers",
                             absl::StrCat("product code includes ", include.header,
                                          ", which belongs to no layer; move what you need down")});
      } else if (!layers.MayUse(layer, used)) {
        findings->push_back({file.path, include.line, "layers",
                             absl::StrCat("layer ", layer, " may not use layer ", used,
                                          " (cmake/LAYERS); move the code, or state the edge "
                                          "there if the architecture has one")});
      }
    }
  }
}

void CheckVendorHeaders(const SourceTree& tree, const std::vector<VendorRule>& rules,
                        std::vector<Finding>* findings) {
  for (const SourceFile& file : tree.files()) {
    for (const Include& include : IncludesOf(file)) {
      for (const VendorRule& rule : rules) {
        const bool allowed = std::any_of(
            rule.allowed.begin(), rule.allowed.end(),
            [&file](const std::string& prefix) { return absl::StartsWith(file.path, prefix); });
        if (!absl::StartsWith(include.header, rule.prefix) || allowed) continue;
        findings->push_back(
            {file.path, include.line, "vendor-header",
             absl::StrCat("<", include.header, "> belongs in ", absl::StrJoin(rule.allowed, ", "),
                          " alone; wrap what you need of it there")});
      }
    }
  }
}

}  // namespace switchyard::tidy
