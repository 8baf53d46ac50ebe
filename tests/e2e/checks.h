// verify and eval on the shipped model, as tests run them.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "tests/e2e/processes.h"
#include "tests/testing/program.h"

namespace switchyard::testing {

// One way to reach the experts. An empty mode is the plan's own.
struct Cell {
  std::string transport;
  std::string mode;
  int workers = 2;
};

inline std::vector<std::string> Arguments(const std::string& program, const Cell& cell) {
  std::vector<std::string> argv{std::string(kBinDir) + "/" + program,
                                "--model",
                                kShippedModel,
                                "--format",
                                "json",
                                "--transport",
                                cell.transport,
                                "--workers",
                                std::to_string(cell.workers)};
  if (!cell.mode.empty()) argv.insert(argv.end(), {"--mode", cell.mode});
  return argv;
}

// The one object that a program prints in json; a failure of the test when there is none.
inline nlohmann::json JsonOf(const ProgramResult& ran) {
  nlohmann::json json = nlohmann::json::parse(ran.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << ran.out << ran.err;
  return json.is_object() ? json : nlohmann::json::object();
}

inline ProgramResult RunVerify(const Cell& cell) {
  std::vector<std::string> argv = Arguments("verify", cell);
  argv.insert(argv.end(), {"--golden", std::string(kShippedModel) + "/golden.safetensors"});
  return RunProgram(argv, std::chrono::seconds(200));
}

// Of a deployment that runs already.
inline ProgramResult RunVerifyOf(const std::string& target, const std::vector<std::string>& more,
                                 const std::string& model = kShippedModel) {
  std::vector<std::string> argv{std::string(kBinDir) + "/verify",
                                "--model",
                                model,
                                "--format",
                                "json",
                                "--golden",
                                std::string(kShippedModel) + "/golden.safetensors",
                                "--target",
                                target};
  argv.insert(argv.end(), more.begin(), more.end());
  return RunProgram(argv, std::chrono::seconds(200));
}

inline ProgramResult RunEval(const Cell& cell, int windows, const std::string& expected) {
  std::vector<std::string> argv = Arguments("switchyard-eval", cell);
  argv.insert(argv.end(), {"--text", std::string(kShippedModel) + "/eval.txt", "--windows",
                           std::to_string(windows), "--expect", expected});
  return RunProgram(argv, std::chrono::seconds(250));
}

}  // namespace switchyard::testing
