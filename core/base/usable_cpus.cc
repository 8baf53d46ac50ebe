#include "core/base/usable_cpus.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace switchyard {
namespace {

// Empty where it cannot be read.
std::string TextOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A container sees its own group as the root. Version 1 has a file for each number, and -1 for
// none.
std::string CpuMax() {
  if (std::string text = TextOf("/sys/fs/cgroup/cpu.max"); !text.empty()) return text;
  return absl::StrCat(TextOf("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), " ",
                      TextOf("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

}  // namespace

int UsableCpus() {
  return CpusUnderQuota(static_cast<int>(std::thread::hardware_concurrency()), CpuMax());
}

int CpusUnderQuota(int cpus, absl::string_view cpu_max) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(cpu_max, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  std::int64_t quota = 0;
  std::int64_t period = 0;
  const bool limited = words.size() == 2 && absl::SimpleAtoi(words[0], &quota) &&
                       absl::SimpleAtoi(words[1], &period) && quota > 0 && period > 0;
  const std::int64_t allowed = limited ? (quota - 1) / period + 1 : cpus;
  return static_cast<int>(std::clamp<std::int64_t>(allowed, 1, std::max(cpus, 1)));
}

}  // namespace switchyard
