// The live page in a real browser: how soon it is there, what it asks for, what it shows.
//
// Skipped where there is no Chromium; scripts/bootstrap test installs it.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

#include "services/coordinator/live_page.h"
#include "tests/services/coordinator/large_view.h"
#include "tests/testing/program.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::LargeView;
using ::testing::MatchesRegex;
using testing::RunProgram;

// What the issue asks for, measured by the page itself.
constexpr double kRenderedMsMax = 1000;

bool HasChromium() {
  return RunProgram({"/bin/sh", "-c", "command -v chromium chromium-headless-shell"}).out != "";
}

class LivePageBrowserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasChromium()) GTEST_SKIP() << "no chromium here: scripts/bootstrap test installs it";
  }
  // browse.py's object about the page of `sources`.
  google::protobuf::Struct Browse(const LiveSources& sources,
                                  const std::vector<std::string>& options) {
    google::protobuf::Struct result;
    const auto server = HttpServer::Start({}, LivePages(sources));
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) return result;
    endpoint_ = (*server)->endpoint();
    std::vector<std::string> argv{
        "/usr/bin/python3",
        absl::StrCat(SWITCHYARD_SOURCE_DIR, "/tests/services/coordinator/browse.py"),
        absl::StrCat("http://", endpoint_, "/?deployment=chat")};
    argv.insert(argv.end(), options.begin(), options.end());
    const testing::ProgramResult ran = RunProgram(argv, std::chrono::seconds(120));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(ran.out, &result).ok()) << ran.out;
    return result;
  }
  static double RenderedMs(const google::protobuf::Struct& result) {
    return result.fields().at("rendered_ms").number_value();
  }
  static std::string Result(const google::protobuf::Struct& result, int index) {
    const auto& value = result.fields().at("results").list_value().values(index);
    return value.has_string_value() ? value.string_value() : value.ShortDebugString();
  }
  void ExpectQuietAndAtHome(const google::protobuf::Struct& result) const {
    for (const auto& url : result.fields().at("requests").list_value().values()) {
      EXPECT_TRUE(absl::StartsWith(url.string_value(), absl::StrCat("http://", endpoint_, "/")))
          << url.string_value();
    }
    EXPECT_GT(result.fields().at("requests").list_value().values_size(), 10);
    for (const auto& problem : result.fields().at("problems").list_value().values()) {
      ADD_FAILURE() << problem.string_value();
    }
  }

  std::string endpoint_;
};

TEST_F(LivePageBrowserTest, TheLargestStateIsThereWithinASecond) {
  const LargeView large;

  // The best of three: this machine has other work.
  double rendered = 1e9;
  google::protobuf::Struct result;
  for (int i = 0; i < 3 && rendered > kRenderedMsMax / 2; ++i) {
    result = Browse(large.Sources(),
                    {"--settle", "1", "--run",
                     "const c = document.getElementById('load-map');"
                     "`${c.width} x ${c.height}`",
                     "--run",
                     "const p = document.getElementById('placement-map');"
                     "`${p.width} x ${p.height}`",
                     "--run", "document.querySelectorAll('#worker-table tbody tr').length + ''",
                     "--run", "document.querySelectorAll('#dispatch-table tbody tr').length + ''"});
    rendered = std::min(rendered, RenderedMs(result));
  }

  RecordProperty("rendered_ms", static_cast<int>(rendered));
  EXPECT_GT(rendered, 0);
  EXPECT_LT(rendered, kRenderedMsMax);
  ExpectQuietAndAtHome(result);
  EXPECT_EQ(Result(result, 0), "256 x 61");
  EXPECT_EQ(Result(result, 1), "256 x 61");
  EXPECT_EQ(Result(result, 2), "32");
  // Two sources, three phases, and the draft layer apart.
  EXPECT_EQ(Result(result, 3), "12");
}

// In words, beside the colors: who is slow, and who does not tell.
TEST_F(LivePageBrowserTest, ShowsHowLongStepsTakeAtEachWorker) {
  const LargeView large(10);
  const std::string rows = "[...document.querySelectorAll('#latency-table tbody tr')]";
  const std::string map = "document.getElementById('latency-map')";

  const auto result = Browse(
      large.Sources(),
      {"--run", absl::StrCat("`${", map, ".width} x ${", map, ".height}`"),  //
       "--run", absl::StrCat(rows, ".at(0).textContent"),                    //
       "--run", absl::StrCat(rows, ".at(-1).textContent"),                   //
       "--run", absl::StrCat(rows, ".length + ''"),                          //
       "--run",
       absl::StrCat("const box = ", map, ".getBoundingClientRect();", map,
                    ".dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 2, "
                    "clientY: box.top + 2})); document.getElementById('latency-hint').textContent"),
       "--run",
       absl::StrCat("const work = document.getElementById('latency-work'); work.value = 'prefill';"
                    "work.dispatchEvent(new Event('change'));",
                    rows, ".at(0).textContent")});

  ExpectQuietAndAtHome(result);
  EXPECT_EQ(Result(result, 0), "10 x 32");
  // Decode takes 0.4 ms, at the slow one eight times as long.
  EXPECT_THAT(Result(result, 1),
              MatchesRegex(absl::StrCat(LargeView::SlowWorkerName(),
                                        "133/s[2-4]\\.[0-9] ms[45]\\.[0-9] ms.*us.*")));
  EXPECT_THAT(Result(result, 2), HasSubstr("not reported----"));
  EXPECT_EQ(Result(result, 3), std::to_string(testing::kLargeWorkers));
  EXPECT_THAT(Result(result, 4),
              MatchesRegex("moe-0-0, .*: 100/s decode steps, step p50 .* us, p99 .* us; queue p50 "
                           ".* us, p99 .* us"));
  EXPECT_THAT(Result(result, 5),
              MatchesRegex(absl::StrCat(LargeView::SlowWorkerName(), "6.7/s[1-4].. ms.*")));
}

// What people name things with is shown as it is, and runs nothing.
TEST_F(LivePageBrowserTest, NamesAreTextAndNothingElse) {
  const std::string evil =
      "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>";
  LargeView large(2);
  for (DeploymentView& deployment : large.view.deployments) {
    deployment.activity = evil;
    deployment.left_out = {evil};
    deployment.problem = absl::UnavailableError(evil);
    deployment.spec.model = evil;
  }
  for (WorkerView& worker : large.view.workers) worker.problem = evil;
  large.view.workers[0].id = evil;
  large.sessions[0].peer = evil;
  JournalEntry entry;
  entry.name = "chat";
  entry.reason = "EpochServing";
  entry.message = absl::StrCat("epoch 13 ", evil);
  large.journal.Add(entry, ReadWallTime());

  const auto result = Browse(
      large.Sources(), {"--run", "document.title", "--run",
                        "document.querySelectorAll('main img, main script').length + ''", "--run",
                        "(document.body.textContent.match(/<img src=x onerror=/g) ?? []).length > "
                        "40 ? 'shown' : 'missing'"});

  ExpectQuietAndAtHome(result);
  EXPECT_EQ(Result(result, 0), "Switchyard");
  EXPECT_EQ(Result(result, 1), "0");
  EXPECT_EQ(Result(result, 2), "shown");
}

// A phone shows the whole page without scrolling sideways, in the dark as well.
TEST_F(LivePageBrowserTest, FitsTheWidthOfAPhoneAndOfADesk) {
  const LargeView large(30);
  for (const char* width : {"390", "1280"}) {
    const auto result =
        Browse(large.Sources(),
               {"--width", width, "--dark", "--run", "document.documentElement.scrollWidth + ''",
                "--run", "getComputedStyle(document.body).backgroundColor"});
    ExpectQuietAndAtHome(result);
    EXPECT_EQ(Result(result, 0), width);
    EXPECT_EQ(Result(result, 1), "rgb(15, 20, 26)");
  }
}

// Samples, workers and events that come later are shown without a reload, and a choice stays.
TEST_F(LivePageBrowserTest, ShowsWhatComesLater) {
  LargeView large(3);
  int looks = 0;
  LiveSources sources = large.Sources();
  // Made one at a time, on the server's one thread for pages.
  sources.view = [&large, &looks] {
    if (++looks == 10) {
      WorkerView more = large.view.workers.back();
      more.id = "moe-late";
      large.view.workers.push_back(more);
      large.AddLoad(7);
    }
    return large.view;
  };

  const auto result =
      Browse(sources, {"--settle", "8", "--run",
                       "[...document.querySelectorAll('#worker-table tbody tr')].length + ''",
                       "--run", "document.getElementById('load-time').max", "--run",
                       "document.getElementById('freshness').textContent"});

  ExpectQuietAndAtHome(result);
  EXPECT_EQ(Result(result, 0), "33");
  EXPECT_EQ(Result(result, 1), "3");
  EXPECT_EQ(Result(result, 2), "live");
}

}  // namespace
}  // namespace switchyard
