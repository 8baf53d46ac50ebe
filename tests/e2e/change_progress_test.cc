// An operator looks on while a deployment changes to a model that takes seconds to read and to
// load: the numbers grow to their totals, and syctl says what serves, what is coming, and what
// waits for what.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/e2e/processes.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::Processes;

constexpr Duration kChangeMax = std::chrono::seconds(240);
constexpr char kSmall[] = "synthetic:seed=1,hidden=64,intermediate=32,experts=8,top_k=2,layers=1";
// 64 experts of 24 MiB: seconds to hash, and seconds to load.
constexpr char kLarge[] =
    "synthetic:seed=2,hidden=2048,intermediate=2048,experts=32,top_k=2,layers=2";
constexpr std::int64_t kLargeBytes = std::int64_t{64} * 3 * 2048 * 2048 * 2;

class ChangeProgressTest : public Processes {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.checkpoint = kSmall;
    options.worker_flags = {"--load-threads", "1"};
    Deploy(2, std::move(options));
    ASSERT_NE(deployment_, nullptr);
    ASSERT_TRUE(Await([this] { return Row("local").value("committed_epoch", 0) == 1; }));
  }
  template <typename Condition>
  static bool Await(Condition met) {
    const auto until = std::chrono::steady_clock::now() + kChangeMax;
    while (std::chrono::steady_clock::now() < until) {
      if (met()) return true;
    }
    return false;
  }
  testing::ProgramResult Syctl(std::vector<std::string> words) {
    words.insert(words.begin(), {absl::StrCat(testing::kBinDir, "/syctl"), "--target",
                                 deployment_->coordinator()});
    return testing::RunProgram(words, kChangeMax);
  }
  // Returns at once; the checkpoint is read afterwards.
  testing::ProgramResult Apply(const std::string& name, const std::string& model,
                               const std::string& checkpoint) {
    const std::string file = folder_.Join(absl::StrCat(name, ".yaml"));
    std::ofstream(file) << "name: " << name << "\nmodel: " << model << "\ncheckpoint: \""
                        << checkpoint << "\"\nmin_workers: 2\n";
    return Syctl({"apply", "-f", file});
  }
  // Empty: there is no such deployment.
  nlohmann::json Row(const std::string& name) {
    const auto all =
        nlohmann::json::parse(Syctl({"get", "deployments", "-o", "json"}).out, nullptr, false);
    if (!all.is_discarded()) {
      for (const nlohmann::json& row : all.at("deployments")) {
        if (row.at("spec").at("name") == name) return row;
      }
    }
    return nlohmann::json::object();
  }
  std::set<std::string> Models() {
    std::set<std::string> names;
    const auto all =
        nlohmann::json::parse(Syctl({"get", "models", "-o", "json"}).out, nullptr, false);
    if (all.is_discarded()) return names;
    for (const nlohmann::json& model : all.at("models")) names.insert(model.at("name"));
    return names;
  }

  const testing::TempDir folder_;
};

// The counts of one thing that grows, as they were seen.
struct Counts {
  std::vector<std::int64_t> seen;

  // False when it fell.
  bool Add(std::int64_t count) {
    if (!seen.empty() && count < seen.back()) return false;
    if (seen.empty() || count > seen.back()) seen.push_back(count);
    return true;
  }
  // How many lie between nothing and `total`.
  [[nodiscard]] int Between(std::int64_t total) const {
    int between = 0;
    for (const std::int64_t count : seen) between += count > 0 && count < total ? 1 : 0;
    return between;
  }
};

TEST_F(ChangeProgressTest, ShowsACheckpointThatIsReadAndWhatWaitsForIt) {
  const std::string serving = Row("local").at("spec").at("model");
  testing::ProgramResult first;
  testing::ProgramResult second;
  std::thread changes([&] { first = Apply("local", "large", kLarge); });
  ASSERT_TRUE(Await([this] { return Row("local").contains("reading"); }));
  std::thread creates([&] { second = Apply("second", "small", kSmall); });

  Counts read;
  bool waited = false;
  std::string shown;
  EXPECT_TRUE(Await([&] {
    const nlohmann::json row = Row("local");
    if (!row.contains("reading")) return !row.empty();
    EXPECT_EQ(row.at("state"), "serving");
    EXPECT_EQ(row.at("serving_model").at("name"), serving);
    EXPECT_THAT(row.at("activity"), HasSubstr("; an apply is reading synthetic:"));
    const nlohmann::json& reading = row.at("reading");
    EXPECT_TRUE(read.Add(reading.at("bytes_done"))) << reading;
    if (reading.at("bytes") != 0) {
      EXPECT_EQ(reading.at("bytes"), kLargeBytes);
    }
    const nlohmann::json other = Row("second");
    if (!other.empty() && other.at("state") == "reading") {
      // One checkpoint is read at a time.
      waited = waited || absl::StrContains(std::string(other.at("activity")), "(not begun)");
    }
    if (read.Between(kLargeBytes) == 3 && shown.empty()) {
      shown = Syctl({"get", "deployments", "-o", "table"}).out;
    }
    return false;
  }));
  changes.join();
  creates.join();

  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_GE(read.Between(kLargeBytes), 2);
  EXPECT_TRUE(waited) << "the second apply was never seen to wait";
  std::printf("%s", shown.c_str());
}

TEST_F(ChangeProgressTest, ShowsWhatIsLoadedHowFarAndWhoWaits) {
  const std::string serving = Row("local").at("spec").at("model");
  const testing::ProgramResult applied = Apply("local", "large", kLarge);
  ASSERT_EQ(applied.code, 0) << applied.err;
  ASSERT_TRUE(Await([this] {
    const nlohmann::json row = Row("local");
    return !row.empty() && !row.contains("reading");
  }));

  std::map<std::string, Counts> loaded;
  std::map<std::string, std::int64_t> totals;
  bool had_rate = false;
  bool listed_former_only = false;
  std::string shown;
  EXPECT_TRUE(Await([&] {
    const nlohmann::json row = Row("local");
    if (row.empty() || row.at("committed_epoch") == 2) return !row.empty();
    EXPECT_EQ(row.at("state"), "serving");
    EXPECT_EQ(row.at("serving_model").at("name"), serving);
    EXPECT_EQ(row.at("serving_model").at("checkpoint"), kSmall);
    EXPECT_EQ(row.at("spec").at("model"), "large");
    EXPECT_THAT(row.at("activity"), HasSubstr("model large is coming: "));
    bool loads = false;
    for (const nlohmann::json& worker : row.at("staging")) {
      if (worker.at("step") != "loading" && worker.at("step") != "prepared") continue;
      const nlohmann::json& progress = worker.at("progress");
      // A worker that has acknowledged may not have reported since.
      if (progress.at("bytes") == 0) continue;
      const std::string id = worker.at("worker");
      EXPECT_TRUE(loaded[id].Add(progress.at("bytes_done"))) << worker;
      totals[id] = progress.at("bytes");
      EXPECT_LE(progress.at("experts_done"), progress.at("experts"));
      had_rate = had_rate || (worker.at("bytes_per_second") > 0 && worker.contains("left"));
      loads = loads || worker.at("step") == "loading";
    }
    if (loads && had_rate && shown.empty()) {
      listed_former_only = Models() == std::set<std::string>{serving};
      shown = Syctl({"get", "deployments", "-o", "table"}).out;
      shown += Syctl({"describe", "deployment", "local", "-o", "table"}).out;
    }
    return false;
  }));

  ASSERT_EQ(totals.size(), 2U);
  std::int64_t all = 0;
  int between = 0;
  for (const auto& [id, counts] : loaded) {
    all += totals[id];
    between += counts.Between(totals[id]);
  }
  EXPECT_EQ(all, kLargeBytes) << "each expert is on one worker";
  EXPECT_GE(between, 3) << "the counts grow";
  EXPECT_TRUE(had_rate);
  EXPECT_TRUE(listed_former_only) << "'get models' lists what serves";
  EXPECT_THAT(shown, HasSubstr("waiting for "));
  EXPECT_THAT(shown, HasSubstr(" experts, "));
  EXPECT_THAT(shown, HasSubstr("coming:"));
  EXPECT_THAT(shown, HasSubstr("NOTE"));
  EXPECT_EQ(Models(), std::set<std::string>{"large"});
  EXPECT_EQ(Row("local").at("activity"), "serving epoch 2");
  std::printf("%s", shown.c_str());
}

}  // namespace
}  // namespace switchyard
