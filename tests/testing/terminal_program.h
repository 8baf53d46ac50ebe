// A program on a terminal of its own, as a person sees it.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include <pty.h>

#include "core/base/clock.h"
#include "core/cli/progress_line.h"

namespace switchyard::testing {

class TerminalProgram {
 public:
  static constexpr unsigned short kColumns = 100;

  // argv[0] is a path. Its standard streams are a terminal of kColumns.
  explicit TerminalProgram(std::vector<std::string> argv) {
    // Before the fork: the child of a process with threads may only call exec.
    argv.insert(argv.begin(), {"/usr/bin/env", "TERM=xterm"});
    std::vector<char*> words;
    for (std::string& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    winsize size{.ws_row = 24, .ws_col = kColumns, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&screen_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      execv(words[0], words.data());
      _exit(127);
    }
  }
  ~TerminalProgram() {
    if (pid_ > 0 && code_ < 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (screen_ >= 0) close(screen_);
  }
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  // Reads until `done` or its end. False when neither came in time.
  bool ReadUntil(const std::function<bool(const std::string& written)>& done, Duration timeout) {
    const TimePoint end = SteadyClock().Now() + timeout;
    while (!done(written_) && code_ < 0) {
      if (SteadyClock().Now() >= end) return false;
      ReadSome();
    }
    return true;
  }
  bool ReadToEnd(Duration timeout) {
    return ReadUntil([](const std::string&) { return false; }, timeout);
  }
  void Signal(int signal) const { kill(pid_, signal); }

  [[nodiscard]] const std::string& written() const { return written_; }
  [[nodiscard]] int code() const { return code_; }  // -1: it runs, or was ended by a signal
  // The progress lines, in the order in which they were drawn.
  [[nodiscard]] std::vector<std::string> Drawn() const {
    std::vector<std::string> drawn;
    for (const absl::string_view piece : absl::StrSplit(written_, kEraseLine)) {
      if (absl::StrContains(piece, " % ") && !absl::StrContains(piece, "\n"))
        drawn.emplace_back(piece);
    }
    return drawn;
  }
  // What stands on the terminal now.
  [[nodiscard]] std::vector<std::string> Lines() const {
    std::vector<std::string> lines(1);
    bool at_begin = false;  // the next character takes the place of the line
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (absl::StartsWith(written_.substr(i, 3), "\x1b[K")) {
        if (at_begin) lines.back().clear();
        i += 2;
      } else if (written_[i] == '\n') {
        lines.emplace_back();
      } else if (written_[i] == '\r') {
        at_begin = true;
        continue;
      } else {
        lines.back() += written_[i];
      }
      at_begin = false;
    }
    return lines;
  }

 private:
  void ReadSome() {
    pollfd readable{screen_, POLLIN, 0};
    if (poll(&readable, 1, 100) != 1) return;
    std::array<char, 4096> bytes{};
    const ssize_t read = ::read(screen_, bytes.data(), bytes.size());
    if (read > 0) return written_.append(bytes.data(), static_cast<std::size_t>(read)), void();
    // EIO: nobody has the terminal open any more.
    int status = 0;
    if (waitpid(pid_, &status, 0) == pid_) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }

  int screen_ = -1;
  pid_t pid_ = -1;
  int code_ = -1;
  std::string written_;
};

}  // namespace switchyard::testing
