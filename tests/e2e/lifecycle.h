// Three workers of the shipped model, two sessions of a client that compute all the time, and an
// operator with syctl.
#pragma once

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/mutex.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

using Json = nlohmann::json;

inline constexpr Duration kProgramMax = std::chrono::seconds(120);

// The parameter is that of Processes::Connect. A derived class starts loads in its SetUp.
class Lifecycle : public Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.min_workers = 2;
    options.coordinator_flags = {"--store", "sqlite:" + folder_.Join("store")};
    Deploy(3, std::move(options));
    ASSERT_NE(deployment_, nullptr);
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect(GetParam()));
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      OpenSessionRequest order;
      order.phase = phase;
      order.step_deadline = std::chrono::seconds(30);
      SY_ASSERT_OK_AND_ASSIGN(auto session, client_->OpenWhenReady(order, kReadyTimeout));
      sessions_.push_back(std::move(session));
    }
    for (const auto& session : sessions_) ASSERT_TRUE(WaitForWorkers(*session, 3));
  }
  void TearDown() override {
    loads_.clear();
    sessions_.clear();
    client_.reset();
  }

  ProgramResult Syctl(std::vector<std::string> words) {
    words.insert(words.begin(),
                 {absl::StrCat(kBinDir, "/syctl"), "--target", deployment_->coordinator()});
    return RunProgram(words, kProgramMax);
  }
  // A command that succeeds.
  std::string Do(const std::vector<std::string>& words) {
    const ProgramResult result = Syctl(words);
    EXPECT_EQ(result.code, 0) << absl::StrJoin(words, " ") << ": " << result.err;
    return result.out;
  }
  std::string StateOf(const std::string& worker) {
    const Json list = Json::parse(Do({"get", "workers"}));
    for (const Json& each : list["workers"]) {
      if (each["id"] == worker) return each["state"];
    }
    return "none";
  }
  std::size_t Workers() { return sessions_[0]->Grant()->plan.workers.size(); }
  // Both sessions have done another step since.
  void ExpectStepsGoOn() {
    for (const auto& load : loads_) {
      const int before = load->steps();
      EXPECT_TRUE(WaitUntil([&] { return load->steps() > before + 1; }));
    }
  }
  template <typename Condition>
  bool WaitUntil(Condition met) {
    const auto until = std::chrono::steady_clock::now() + kReadyTimeout;
    const MutexLock lock(mutex_);
    while (!met() && std::chrono::steady_clock::now() < until) {
      never_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
    }
    return met();
  }
  void ExpectNoStepFailed() {
    for (const auto& load : loads_) {
      load->Stop();
      SY_EXPECT_OK(load->first_error());
      EXPECT_EQ(load->failed(), 0) << "of " << load->steps();
    }
  }
  std::string WriteFile(const std::string& yaml) {
    std::string file = folder_.Join("deployment.yaml");
    std::ofstream(file) << yaml;
    return file;
  }
  void ApplyOther() {
    const std::string file =
        WriteFile(absl::StrCat("name: other\ncheckpoint: ", kShippedModel, "\n"));
    EXPECT_THAT(Do({"apply", "-f", file, "--wait", "-o", "table"}),
                ::testing::HasSubstr("serving"));
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> OpenOther() {
    OpenSessionRequest order;
    order.deployment = "other";
    order.phase = Phase::kDecode;
    return client_->Open(order);
  }

  const TempDir folder_;
  Mutex mutex_;
  CondVar never_;  // notified by nobody
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<MoeSession>> sessions_;
  std::vector<std::unique_ptr<StepLoad>> loads_;
};

}  // namespace switchyard::testing
