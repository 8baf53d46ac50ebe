#include "ctl/doctor/service_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"

namespace switchyard::ctl {
namespace {

using ::testing::AllOf;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

auto Is(Verdict verdict, const std::string& found) {
  return AllOf(
      Field(&Check::verdict, verdict), Field(&Check::found, HasSubstr(found)),
      Field(&Check::next,
            verdict == Verdict::kOk ? ::testing::Matcher<std::string>(IsEmpty()) : Not(IsEmpty())));
}

WorkerFacts Worker(const std::string& id) {
  WorkerFacts worker;
  worker.id = id;
  worker.endpoint = absl::StrCat(id, ".pool:7710");
  worker.state = "live";
  worker.protocol = 2;
  worker.asked = true;
  worker.version = "0.1.0";
  return worker;
}

// All is well.
ServiceFacts Facts() {
  ServiceFacts facts;
  facts.target = "coordinator:7700";
  facts.name = {"coordinator", "", 1, "10.0.0.1"};
  facts.coordinator = CoordinatorFacts{
      .status = {}, .next = {}, .version = "0.1.0", .protocol = 2, .ready = ServingState::kServing};
  facts.list = absl::OkStatus();
  facts.workers = {Worker("w0"), Worker("w1")};
  facts.worker_names = {{"w0.pool", "", 1, "10.0.0.2"}, {"w1.pool", "", 1, "10.0.0.3"}};
  facts.newest_event_s = 1000;
  facts.now_s = 1000;
  facts.own_version = "0.1.0";
  facts.own_protocol = 2;
  return facts;
}

// The checks that are neither OK nor skipped.
std::vector<std::string> Flipped(const ServiceFacts& facts) {
  std::vector<std::string> names;
  for (const Check& each : ServiceChecks(facts)) {
    if (each.verdict == Verdict::kWarn || each.verdict == Verdict::kFail) {
      names.push_back(absl::StrCat(each.name, " ", std::string(VerdictName(each.verdict))));
    }
  }
  return names;
}

TEST(ServiceChecksTest, AllIsWell) {
  for (const Check& each : ServiceChecks(Facts())) {
    EXPECT_EQ(each.verdict, Verdict::kOk) << each.name << ": " << each.found;
  }
}

// One fault gives one line that says so; what depends on it is skipped and says on what.
TEST(ServiceChecksTest, EachFaultFlipsItsOwnCheck) {
  ServiceFacts facts = Facts();
  facts.name.wrong = "Name or service not known";
  facts.coordinator.reset();
  facts.list.reset();
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("dns FAIL"));
  EXPECT_THAT(CheckVersions(facts), Is(Verdict::kSkip, "dns comes first"));

  facts = Facts();
  facts.coordinator->status = MakeError(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost,
                                        "coordinator:7700 cannot be reached", {});
  facts.coordinator->next = "check that switchyard-coordinator runs there";
  facts.list.reset();
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("coordinator FAIL"));
  EXPECT_THAT(CheckCoordinator(facts), Field(&Check::next, HasSubstr("switchyard-coordinator")));
  EXPECT_THAT(CheckWorkerPorts(facts), Is(Verdict::kSkip, "coordinator comes first"));

  facts = Facts();
  facts.coordinator->ready = ServingState::kNotServing;
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("coordinator FAIL"));
  facts.coordinator->ready = ServingState::kUnknown;
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("coordinator WARN"));

  facts = Facts();
  facts.list = absl::InternalError("broken");
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("workers FAIL"));

  facts = Facts();
  facts.worker_names[1].wrong = "Name or service not known";
  facts.workers[1].answer = absl::UnavailableError("name");
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("worker-dns FAIL"));
  EXPECT_THAT(CheckWorkerNames(facts), Is(Verdict::kFail, "1 of 2 hosts of workers"));

  facts = Facts();
  facts.workers[1].answer = absl::UnavailableError("refused");
  facts.workers[1].version = "";
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("worker-ports FAIL"));
  EXPECT_THAT(CheckWorkerPorts(facts), Is(Verdict::kFail, "w1 at w1.pool:7710"));

  facts = Facts();
  facts.newest_event_s = facts.now_s + 6;
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("clock WARN"));
  EXPECT_THAT(CheckClock(facts), Is(Verdict::kWarn, "at least 6 s behind"));
}

TEST(ServiceChecksTest, TellsVersionsThatDiffer) {
  ServiceFacts facts = Facts();
  facts.workers[1].version = "0.2.0";
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("versions WARN"));
  EXPECT_THAT(CheckVersions(facts), Is(Verdict::kWarn, "others: w1 0.2.0"));
  facts = Facts();
  facts.own_version = "0.0.9";
  EXPECT_THAT(CheckVersions(facts), Is(Verdict::kWarn, "others: syctl 0.0.9"));
  facts.workers[0].protocol = 1;
  EXPECT_THAT(Flipped(facts), UnorderedElementsAre("versions FAIL"));
  EXPECT_THAT(CheckVersions(facts), Is(Verdict::kFail, "of the protocol, w0 has 1"));
  facts = Facts();
  facts.own_protocol = 3;
  EXPECT_THAT(CheckVersions(facts), Is(Verdict::kFail, "syctl has 3"));
}

TEST(ServiceChecksTest, CountsWorkersThatAreLive) {
  ServiceFacts facts = Facts();
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kOk, "2 of 2 known workers are live"));
  facts.workers[1].state = "drained";
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kOk, "1 of 2 known workers are live, 1 are set"));
  facts.workers[1].state = "stuck";
  facts.workers[1].problem = "its thread stands still";
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kWarn, "w1 stuck (its thread stands still)"));
  facts.workers[0].state = "unreachable";
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kFail, "0 of 2"));
  facts.workers.clear();
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kWarn, "knows no worker"));
}

TEST(ServiceChecksTest, ARoleThatMayNotAskIsNoFault) {
  ServiceFacts facts = Facts();
  facts.list = absl::PermissionDeniedError("worker may not call ListWorkers");
  facts.workers.clear();
  facts.worker_names.clear();
  facts.newest_event_s.reset();
  EXPECT_THAT(Flipped(facts), IsEmpty());
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kSkip, "may not call"));
  EXPECT_THAT(CheckClock(facts), Is(Verdict::kSkip, "has told no time"));
  // A port that refuses the caller is open.
  facts = Facts();
  facts.workers[0].answer = absl::PermissionDeniedError("coordinator may not call GetStatus");
  EXPECT_THAT(CheckWorkerPorts(facts), Is(Verdict::kOk, "all 2 ports answer"));
}

TEST(ServiceChecksTest, SaysWhatTimeOrBoundsLeftOut) {
  ServiceFacts facts = Facts();
  facts.workers[1].asked = false;
  facts.unresolved = 1;
  EXPECT_THAT(CheckWorkerPorts(facts), Is(Verdict::kOk, "the port answers from here; 1 more"));
  EXPECT_THAT(CheckWorkerNames(facts), Is(Verdict::kOk, "1 more were not looked up"));
  facts.workers[0].asked = false;
  EXPECT_THAT(CheckWorkerPorts(facts), Is(Verdict::kSkip, "no worker was asked"));
  facts.coordinator.reset();
  EXPECT_THAT(CheckCoordinator(facts), Is(Verdict::kFail, "no time was left"));
  facts = Facts();
  facts.list.reset();
  EXPECT_THAT(CheckWorkers(facts), Is(Verdict::kFail, "no time was left"));
}

TEST(ServiceSkippedTest, HasTheSameLines) {
  const std::vector<Check> skipped = ServiceSkipped("why", "next");
  const std::vector<Check> checks = ServiceChecks(Facts());
  ASSERT_EQ(skipped.size(), checks.size());
  for (std::size_t i = 0; i < checks.size(); ++i) {
    EXPECT_EQ(skipped[i].name, checks[i].name);
    EXPECT_THAT(skipped[i], Is(Verdict::kSkip, "why"));
  }
}

}  // namespace
}  // namespace switchyard::ctl
