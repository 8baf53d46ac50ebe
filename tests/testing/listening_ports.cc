#include "tests/testing/listening_ports.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace switchyard::testing {

std::set<std::uint16_t> PortsOf(pid_t process) {
  std::set<std::string> inodes;
  std::error_code gone;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/fd"), gone)) {
    const std::string link = std::filesystem::read_symlink(entry.path(), gone).string();
    if (link.rfind("socket:[", 0) == 0) inodes.insert(link.substr(8, link.size() - 9));
  }
  std::set<std::uint16_t> ports;
  std::ifstream table(absl::StrCat("/proc/", process, "/net/tcp"));
  for (std::string line; std::getline(table, line);) {
    // Columns: number, local address:port, remote, state (0A: listens), ..., inode in the tenth.
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 10 || words[3] != "0A" || !inodes.contains(words[9])) continue;
    std::uint32_t port = 0;
    EXPECT_TRUE(absl::SimpleHexAtoi(words[1].substr(words[1].find(':') + 1), &port));
    ports.insert(static_cast<std::uint16_t>(port));
  }
  return ports;
}

}  // namespace switchyard::testing
