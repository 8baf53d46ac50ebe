// A program that stands beside the test's own, as a process that takes and gives lines.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard::testing {

class LineProcess {
 public:
  LineProcess(const std::string& name, const std::vector<std::string>& arguments) {
    int in[2];
    int out[2];
    // Not the process's: it would keep itself alive.
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    const std::string program = FolderOfThis() + name;
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  // Closes its standard input, which ends it, and waits for that.
  ~LineProcess() {
    close(to_);
    close(from_);
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
  }
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  void Write(std::string line) const {
    line += '\n';
    EXPECT_EQ(write(to_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  // The next line; what there was of it, if the process ends.
  [[nodiscard]] std::string Read() const {
    std::string line;
    char one = 0;
    while (read(from_, &one, 1) == 1 && one != '\n') line += one;
    return line;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
  }

 private:
  static std::string FolderOfThis() {
    std::array<char, 4096> path{};
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
    const std::string own(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    return own.substr(0, own.rfind('/') + 1);
  }

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

}  // namespace switchyard::testing
