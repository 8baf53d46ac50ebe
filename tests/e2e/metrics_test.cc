// Every metric of docs/METRICS.md is moved by real processes that serve sessions of all three
// bindings, or by a test that is named here. Meanwhile a thread scrapes, as Prometheus would but
// all the time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/docs/pages.h"
#include "tests/e2e/system_ports.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::HttpRequest;
using testing::RunStep;

constexpr std::int32_t kLayer = 0;
constexpr Duration kLong = testing::kProgramTimeout;
constexpr std::size_t kSeriesMax = 2'000;
constexpr Duration kScrapeMax = std::chrono::milliseconds(20);

// Constant while a process lives, or about what does not happen here, each with the test that makes
// it happen.
const std::map<std::string, std::string>& MovedElsewhere() {
  static const std::map<std::string, std::string> tests{
      {"moe_build_info", "MetricsTextTest.SaysTheVersionAndTheHealth"},
      {"moe_live", "MetricsTextTest.SaysTheVersionAndTheHealth"},
      {"moe_certificate_not_before_timestamp_seconds",
       "TransportSecurityTest.SaysHowLongTheFileIsValidNow"},
      {"moe_certificate_not_after_timestamp_seconds",
       "TransportSecurityTest.SaysHowLongTheFileIsValidNow"},
      {"moe_weight_max_bytes", "WorkerMetricsTest.WritesWhatWasCollected"},
      {"moe_gateway_memory_max_bytes", "WorkerMetricsTest.WritesWhatWasCollected"},
      {"moe_data_thread_answered", "WorkerScrapeTest.DoesNotHangWithTheDataThread"},
      {"moe_frames_dropped_total", "InboxTest.DropsPiecesOfTheWrongSizeOrOrder"},
      {"moe_late_wakes_total", "WorkerMetricsTest.WritesWhatWasCollected"},
      {"moe_trace_spans_total", "TracesTest.WorkersCountTheirSpans"},
      {"moe_trace_records_dropped_total", "TraceExporterTest.AFloodIsCutAndCounted"},
      {"moe_duplicate_requests_total", "ExpertEngineTest.DropsASecondRequestForABusyCredit"},
  };
  return tests;
}

// Scrapes one program until it ends, and notes which metrics have another value than at first.
class Watch {
 public:
  explicit Watch(std::string system) : system_(std::move(system)), thread_([this] { Run(); }) {}
  ~Watch() {
    stopping_ = true;
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Whether a metric has moved, within so long.
  bool Moved(const std::string& metric, Duration within) {
    const TimePoint end = SteadyClock().Now() + within;
    do {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (moved_.contains(metric)) return true;
      }
      std::this_thread::yield();
    } while (SteadyClock().Now() < end);
    return false;
  }
  std::set<std::string> moved() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return moved_;
  }
  std::string page() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return page_;
  }
  Duration MedianScrape() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Duration> took = took_;
    std::nth_element(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2),
                     took.end());
    return took[took.size() / 2];
  }
  // Of the page.
  static std::map<std::string, std::string> Series(const std::string& page) {
    std::map<std::string, std::string> series;
    for (const absl::string_view line : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
      const std::size_t space = line.rfind(' ');
      if (line[0] == '#') continue;
      series[std::string(line.substr(0, space))] = std::string(line.substr(space + 1));
    }
    return series;
  }

 private:
  void Run() {
    while (!stopping_) {
      const TimePoint before = SteadyClock().Now();
      const std::string page = HttpRequest(system_, "/metrics").body;
      const Duration took = SteadyClock().Now() - before;
      if (page.empty()) continue;
      const auto series = Series(page);
      const std::lock_guard<std::mutex> lock(mutex_);
      took_.push_back(took);
      page_ = page;
      if (first_.empty()) first_ = series;
      for (const auto& [name, value] : series) {
        const auto at = first_.find(name);
        if (at != first_.end() && at->second == value) continue;
        std::string metric = name.substr(0, name.find('{'));
        if (absl::EndsWith(metric, "_count")) metric.resize(metric.size() - 6);
        moved_.insert(metric);
      }
    }
  }

  const std::string system_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<std::string, std::string> first_;
  std::set<std::string> moved_;
  std::vector<Duration> took_;
  std::string page_;
  std::thread thread_;
};

class MetricsTest : public testing::SystemPorts {
 protected:
  static docs::Table Documented() {
    return docs::TableBelow("docs/METRICS.md",
                            {"metric", "of", "type", "labels", "unit", "meaning"});
  }
  // p2p, with a row with a NaN, and enough rows that a scrape meets a batch.
  static void RunP2p(Client& client, Watch& worker) {
    OpenSessionRequest order;
    order.deployment = "local";
    order.max_tokens = 256;
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client.OpenWhenReady(order, kLong));
    Batch poisoned(3, 5);
    poisoned.x[0] = FloatToBf16(std::numeric_limits<float>::quiet_NaN());
    SY_ASSERT_OK(RunStep(*session, poisoned, kLayer));
    Batch large(256, 6);
    const TimePoint end = SteadyClock().Now() + kLong;
    do {
      SY_ASSERT_OK(RunStep(*session, large, kLayer));
    } while (!worker.Moved("moe_batch_age_seconds", Duration::zero()) && SteadyClock().Now() < end);
    EXPECT_TRUE(worker.Moved("moe_attachments_open", kLong));
  }
  static void RunGateway(const std::string& gateway, Watch& worker) {
    ClientOptions options;
    options.gateway = gateway;
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(options));
    OpenSessionRequest order;
    order.deployment = "local";
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, kLong));
    Batch batch(64, 7);
    const TimePoint end = SteadyClock().Now() + kLong;
    do {
      SY_ASSERT_OK(RunStep(*session, batch, kLayer));
    } while (!worker.Moved("moe_gateway_memory_bytes", Duration::zero()) &&
             SteadyClock().Now() < end);
    EXPECT_TRUE(worker.Moved("moe_gateway_sessions_open", kLong));
  }
  static void RunGroup(Client& client, Watch& worker) {
    OpenSessionRequest order;
    order.deployment = "local";
    order.mode = DispatchMode::kLowLatency;
    order.max_tokens = 64;
    order.binding = BindingChoice::kCollective;
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client.OpenWhenReady(order, kLong));
    Batch batch(16, 8);
    for (int i = 0; i < 20; ++i) SY_ASSERT_OK(RunStep(*session, batch, kLayer));
    EXPECT_TRUE(worker.Moved("moe_groups_open", kLong));
  }
};

TEST_F(MetricsTest, EachIsMovedAndScrapesOfALoadedWorkerAreQuick) {
  SY_ASSERT_OK_AND_ASSIGN(const Running coordinator, StartCoordinator());
  Watch of_coordinator(coordinator.system);
  ASSERT_TRUE(of_coordinator.Moved("moe_coordinator_turns_total", kLong));
  SY_ASSERT_OK_AND_ASSIGN(const Running w0, StartWorker(coordinator.endpoint));
  Watch of_w0(w0.system);
  ASSERT_TRUE(of_w0.Moved("moe_data_thread_turns_total", kLong));
  SY_ASSERT_OK_AND_ASSIGN(const Running w1, StartWorker(coordinator.endpoint, "w1"));
  EXPECT_TRUE(of_coordinator.Moved("moe_workers", kLong));

  Apply(coordinator.endpoint);
  // Large enough that a scrape meets its loading.
  Apply(coordinator.endpoint, "synthetic:hidden=512,intermediate=512,experts=16,top_k=2,layers=4",
        "slow");
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectTo(coordinator.endpoint));
  RunP2p(*client, of_w0);
  RunGateway(w0.endpoint, of_w0);
  RunGroup(*client, of_w0);
  EXPECT_TRUE(of_coordinator.Moved("moe_sessions_open", kLong));
  // The last numbers of the sessions above.
  EXPECT_TRUE(of_w0.Moved("moe_group_steps_total", kLong));

  std::set<std::string> moved = of_w0.moved();
  moved.merge(of_coordinator.moved());
  for (const auto& row : Documented()) {
    const auto elsewhere = MovedElsewhere().find(row[0]);
    if (elsewhere != MovedElsewhere().end()) {
      EXPECT_TRUE(docs::Tests().contains(elsewhere->second)) << elsewhere->second;
      continue;
    }
    EXPECT_TRUE(moved.contains(row[0])) << row[0];
  }
  for (const auto& [program, watch] :
       {std::pair("coordinator", &of_coordinator), std::pair("worker", &of_w0)}) {
    EXPECT_LT(Watch::Series(watch->page()).size(), kSeriesMax);
    EXPECT_LT(watch->MedianScrape(), kScrapeMax);
    RecordProperty(absl::StrCat(program, "_scrape_us"),
                   absl::StrCat(watch->MedianScrape() / std::chrono::microseconds(1)));
    RecordProperty(absl::StrCat(program, "_series"),
                   absl::StrCat(Watch::Series(watch->page()).size()));
  }
}

TEST_F(MetricsTest, SyctlHasWhatThePagesHave) {
  SY_ASSERT_OK_AND_ASSIGN(const Running coordinator, StartCoordinator());
  SY_ASSERT_OK_AND_ASSIGN(const Running worker, StartWorker(coordinator.endpoint));
  Apply(coordinator.endpoint);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectTo(coordinator.endpoint));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, kLong));
  Batch batch(5, 3);
  for (int i = 0; i < 10; ++i) SY_ASSERT_OK(RunStep(*session, batch, kLayer));

  for (const auto& [name, system] :
       {std::pair("coordinator", coordinator.system), std::pair("w0", worker.system)}) {
    const testing::ProgramResult all = Syctl(coordinator.endpoint, {"get", "metrics", name});
    EXPECT_EQ(all.code, 0) << all.err;
    for (const absl::string_view line :
         absl::StrSplit(HttpRequest(system, "/metrics").body, '\n', absl::SkipEmpty())) {
      if (!absl::StartsWith(line, "# TYPE ")) continue;
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      EXPECT_THAT(all.out, ::testing::HasSubstr(absl::StrCat("\"", words[2], "\"")));
    }
  }
  const testing::ProgramResult table =
      Syctl(coordinator.endpoint, {"get", "metrics", "-o", "table"});
  EXPECT_THAT(table.out, ::testing::HasSubstr("w0           moe_request_duration_seconds"));
  EXPECT_THAT(table.out, ::testing::HasSubstr("coordinator  moe_sessions_open"));
}

// Neither passes an attachment, and syctl top counts both.
TEST_F(MetricsTest, TopCountsStepsOfTheGatewayAndOfGroups) {
  SY_ASSERT_OK_AND_ASSIGN(const Running coordinator, StartCoordinator());
  SY_ASSERT_OK_AND_ASSIGN(const Running worker, StartWorker(coordinator.endpoint));
  Apply(coordinator.endpoint);
  ClientOptions through;
  through.gateway = worker.endpoint;
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway, Client::Connect(through));
  SY_ASSERT_OK_AND_ASSIGN(const auto direct, ConnectTo(coordinator.endpoint));
  OpenSessionRequest lockstep;
  lockstep.mode = DispatchMode::kLowLatency;
  lockstep.max_tokens = 64;
  lockstep.binding = BindingChoice::kCollective;
  for (const auto& [client, order] :
       {std::pair(gateway.get(), OpenSessionRequest()), std::pair(direct.get(), lockstep)}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, kLong));
    std::atomic<bool> done{false};
    std::thread steps([&, session = session.get()] {
      Batch batch(8, 9);
      while (!done) SY_ASSERT_OK(RunStep(*session, batch, kLayer));
    });
    const testing::ProgramResult top = Syctl(coordinator.endpoint, {"top", "-o", "table"});
    done = true;
    steps.join();
    const std::vector<std::string> lines = absl::StrSplit(top.out, '\n');
    ASSERT_GE(lines.size(), 2U) << top.out << top.err;
    const std::vector<std::string> cells = absl::StrSplit(lines[1], ' ', absl::SkipEmpty());
    ASSERT_GE(cells.size(), 4U) << top.out;
    EXPECT_NE(cells[2], "0") << top.out;
    EXPECT_NE(cells[3], "0") << top.out;
  }
}

}  // namespace
}  // namespace switchyard
