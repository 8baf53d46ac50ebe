// A limit on this process's address space for a part of a test, so that a lack of memory is an
// error there and not a full machine.
#pragma once

#include <cstdint>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace switchyard::testing {

// Lets the process grow by `bytes` while it lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace switchyard::testing
