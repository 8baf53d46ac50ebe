// syctl traces, to which an exporter sends.
#include "ctl/traces/traces.h"

#include <future>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/tracing/trace_record.h"
#include "ctl/syctl.h"
#include "services/tracing/trace_exporter.h"

namespace switchyard::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Sends the spans of a step to `endpoint`.
void Send(const std::string& endpoint, std::uint64_t step) {
  TraceExporter exporter({.service = "switchyard-client", .instance = "abc"});
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = endpoint});
  TraceRecord record;
  record.key = {.session = {1, 2}, .source = 3, .step = StepId{step}};
  record.times = {Now(), Now(), Now(), Now()};
  tracer->Push(record);
  exporter.Stop(std::chrono::seconds(20));
  EXPECT_EQ(exporter.counts().exported, 3U);
}

TEST(TracesCommandTest, PrintsWhatArrives) {
  std::promise<std::string> endpoint;
  std::string shown;
  const Viewer viewer{.tell =
                          [&endpoint](const std::string& line) {
                            constexpr char kBefore[] = "takes traces at ";
                            ASSERT_THAT(line, StartsWith(kBefore));
                            endpoint.set_value(line.substr(sizeof(kBefore) - 1));
                          },
                      .live =
                          [&shown](const std::string& text) {
                            shown += text;
                            return true;
                          }};
  std::thread sender([&endpoint] {
    const std::string to = endpoint.get_future().get();
    Send(to, 17);
    Send(to, 18);
  });

  const SyctlResult result = RunSyctl(
      {"traces", "--listen", "127.0.0.1:0", "--count", "2", "--timeout", "60", "-o", "table"}, {},
      viewer);
  sender.join();

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(shown, HasSubstr("step 17"));
  EXPECT_THAT(shown, HasSubstr("step 18"));
  EXPECT_THAT(shown, HasSubstr("\n  moe.plan"));
}

TEST(TracesCommandTest, SaysThatNothingHasCome) {
  const SyctlResult result =
      RunSyctl({"traces", "--listen", "127.0.0.1:0", "--count", "1", "--timeout", "0.2"}, {});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("0 of 1 traces have come"));
}

TEST(TracesCommandTest, RefusesAnAddressThatIsNone) {
  EXPECT_EQ(RunSyctl({"traces", "--listen", "4317"}, {}).exit_code, 2);
  EXPECT_EQ(RunSyctl({"traces", "--listen", "192.0.2.1:0"}, {}).exit_code, 1)
      << "not of this machine";
}

}  // namespace
}  // namespace switchyard::ctl
