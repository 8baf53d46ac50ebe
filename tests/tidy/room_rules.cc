#include "tests/tidy/room_rules.h"

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace switchyard::tidy {
namespace {

constexpr std::size_t kRoomsMax = 25;

std::string FolderOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().generic_string();
}

// The first character at or after code[line][column] that is no blank; '\0' at the end.
char NextCharacter(const SourceFile& file, std::size_t line, std::size_t column) {
  for (; line < file.code.size(); ++line, column = 0) {
    const std::size_t found = file.code[line].find_first_not_of(' ', column);
    if (found != std::string::npos) return file.code[line][found];
  }
  return '\0';
}

}  // namespace

void CheckFolderCircles(const SourceTree& tree, const Layers& layers,
                        std::vector<Finding>* findings) {
  Uses uses;
  std::map<std::pair<std::string, std::string>, Finding> first;  // by edge
  for (const SourceFile& file : tree.files()) {
    if (!file.IsCpp() || layers.LayerOf(file.path).empty()) continue;
    const std::string folder = FolderOf(file.path);
    uses[folder];
    for (const Include& include : IncludesOf(file)) {
      const std::string used = FolderOf(include.header);
      if (!include.quoted || used == folder || tree.Find(include.header) == nullptr) continue;
      uses[folder].insert(used);
      uses[used];
      first.try_emplace({folder, used}, Finding{file.path, include.line, "folder-circle", ""});
    }
  }
  for (std::vector<std::string> chain = FindCircle(uses); !chain.empty();
       chain = FindCircle(uses)) {
    Finding finding = first.at({chain[0], chain[1]});
    finding.message =
        absl::StrCat("folders use each other: ", absl::StrJoin(chain, " -> "),
                     "; move what both need into a folder below, or one room to the other side");
    findings->push_back(std::move(finding));
    uses[chain[0]].erase(chain[1]);
  }
}

void CheckRooms(const SourceTree& tree, const Layers& layers, std::vector<Finding>* findings) {
  std::map<std::string, std::set<std::string>> rooms;
  for (const SourceFile& file : tree.files()) {
    if (!file.IsCpp() || layers.LayerOf(file.path).empty()) continue;
    rooms[FolderOf(file.path)].insert(std::filesystem::path(file.path).stem().string());
  }
  for (const auto& [folder, names] : rooms) {
    if (names.size() <= kRoomsMax) continue;
    findings->push_back({folder, 0, "rooms",
                         absl::StrCat(names.size(), " rooms, at most ", kRoomsMax,
                                      "; give those that belong together a folder of their own")});
  }
}

void CheckDeviceSeam(const SourceTree& tree, const Layers& layers, std::vector<Finding>* findings) {
  const std::string make = "MakeDevice(";
  for (const SourceFile& file : tree.files()) {
    const bool inside =
        IsBelow(file.path, "worker/device") || IsBelow(file.path, "worker/registry");
    if (!file.IsCpp() || layers.LayerOf(file.path).empty() || inside) continue;
    for (const Include& include : IncludesOf(file)) {
      if (!IsBelow(include.header, "worker/device/cpu")) continue;
      findings->push_back({file.path, include.line, "device-seam",
                           absl::StrCat(include.header,
                                        " is of one device; use worker/device, "
                                        "which holds for every one")});
    }
    for (std::size_t i = 0; i < file.code.size(); ++i) {
      const std::size_t call = file.code[i].find(make);
      if (call == std::string::npos) continue;
      if (NextCharacter(file, i, call + make.size()) != '"') continue;
      findings->push_back({file.path, static_cast<int>(i) + 1, "device-seam",
                           "the kind of a device is written into the source; take it from a flag "
                           "or from the options"});
    }
  }
}

}  // namespace switchyard::tidy
