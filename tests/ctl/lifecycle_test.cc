// What the verbs that change something ask the coordinator, and what they print.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ctl/json.h"
#include "ctl/syctl.h"
#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LifecycleVerbsTest : public ::testing::Test {
 protected:
  SyctlResult Run(std::vector<std::string> words) {
    words.insert(words.end(), {"--target", coordinator_.endpoint()});
    return RunSyctl(words, {.is_terminal = true, .width = 0});
  }
  v1::Deployment& deployment() { return *coordinator_.deployments.mutable_deployments(0); }

  ScriptedCoordinator coordinator_;
};

TEST_F(LifecycleVerbsTest, DeleteSaysHowManySessionsItWaitsFor) {
  deployment().set_sessions(3);

  EXPECT_EQ(Run({"delete", "deployment", "local"}).out,
            "deployment local is being deleted; 3 sessions are open\n");
  EXPECT_EQ(Run({"delete", "deployment/local", "--now"}).out,
            "deployment local is being deleted\n");
  ASSERT_EQ(coordinator_.asked().size(), 2U);
  EXPECT_FALSE(coordinator_.asked()[0].now());
  EXPECT_TRUE(coordinator_.asked()[1].now());
  const SyctlResult unknown = Run({"delete", "deployment", "other"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("UNKNOWN_MODEL"));
}

TEST_F(LifecycleVerbsTest, DeleteCanWaitUntilItIsGone) {
  deployment().set_state(v1::DEPLOYMENT_STATE_DELETING);
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks == 2) coordinator_.deployments.clear_deployments();
  };

  EXPECT_EQ(Run({"delete", "deployment", "local", "--wait"}).out, "deployment local is deleted\n");
}

TEST_F(LifecycleVerbsTest, RollbackSaysWhichRevisionItMade) {
  deployment().set_revision(3);

  EXPECT_EQ(Run({"rollback", "deployment", "local"}).out,
            "deployment local is rolled back as revision 4\n");
  EXPECT_EQ(Run({"rollback", "deployment/local", "--to-revision", "3"}).out,
            "deployment local is unchanged: revision 3 is the same\n");
  ASSERT_EQ(coordinator_.rollbacks().size(), 2U);
  EXPECT_EQ(coordinator_.rollbacks()[0].to_revision(), 0U);
  EXPECT_EQ(coordinator_.rollbacks()[1].to_revision(), 3U);
  EXPECT_EQ(Run({"rollback", "deployment", "local", "--to-revision", "0"}).exit_code, 2);
  EXPECT_EQ(Run({"rollback", "deployment", "local", "--to-revision=-1"}).exit_code, 2);
  EXPECT_EQ(Run({"rollback", "deployment", "other"}).exit_code, 1);
}

TEST_F(LifecycleVerbsTest, RollbackCanWaitUntilItServes) {
  deployment().set_revision(3);
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks != 3) return;  // After the look before the rollback.
    deployment().set_current(true);
    deployment().set_revision(4);
  };

  EXPECT_EQ(Run({"rollback", "deployment", "local", "--wait"}).out,
            "deployment local is rolled back as revision 4, which serves\n");
}

TEST_F(LifecycleVerbsTest, RollbackDoesNotTakeANewerRevisionForItsOwn) {
  deployment().set_revision(3);
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks != 3) return;
    deployment().set_current(true);
    deployment().set_revision(5);
  };

  const SyctlResult result = Run({"rollback", "deployment", "local", "--wait"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("deployment local: revision 5 serves"));
}

// Programs read it, and the object of before the wait would be wrong by then.
TEST_F(LifecycleVerbsTest, JsonAfterAWaitIsWhatIsSoThen) {
  const auto json = [this](std::vector<std::string> words) {
    words.insert(words.end(), {"--wait", "-o", "json"});
    return Json::parse(Run(std::move(words)).out);
  };
  const auto w1 = [this]() -> v1::Worker& { return *coordinator_.workers.mutable_workers(1); };
  w1().set_state(v1::WORKER_STATE_DRAINED);
  EXPECT_EQ(json({"drain", "w1"})["worker"]["state"], "drained");
  w1().set_state(v1::WORKER_STATE_LIVE);
  EXPECT_EQ(json({"uncordon", "w1"})["worker"]["state"], "live");
  w1().set_state(v1::WORKER_STATE_CORDONED);
  EXPECT_EQ(json({"cordon", "w1"})["worker"]["state"], "cordoned");

  deployment().set_revision(3);
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks != 3) return;
    deployment().set_current(true);
    deployment().set_revision(4);
    deployment().set_committed_epoch(8);
  };
  EXPECT_EQ(json({"rollback", "deployment", "local"})["deployment"]["committed_epoch"], 8);
  coordinator_.on_get = [&] { coordinator_.deployments.clear_deployments(); };
  EXPECT_EQ(json({"delete", "deployment", "local"}),
            Json({{"deployment", "local"}, {"condition", "deleted"}}));
}

TEST_F(LifecycleVerbsTest, RollbackToWhatIsRefusedFails) {
  deployment().set_revision(3);
  coordinator_.problem =
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig, "no fp8");

  const SyctlResult result = Run({"rollback", "deployment", "local", "--wait"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("no fp8"));
}

TEST_F(LifecycleVerbsTest, WorkersAreNamedInThreeWays) {
  EXPECT_EQ(Run({"cordon", "worker", "w0"}).out, "worker w0 is cordoned\n");
  EXPECT_EQ(Run({"uncordon", "worker/w0"}).out, "worker w0 may be used by plans\n");
  EXPECT_EQ(Run({"drain", "w1"}).out,
            "warning: deployment local: 1 workers are left\nworker w1 is being drained\n");
  EXPECT_EQ(Run({"drain", "w1", "--force"}).exit_code, 0);
  EXPECT_THAT(coordinator_.duties(),
              ElementsAre("cordon w0", "uncordon w0", "drain w1", "force drain w1"));
}

TEST_F(LifecycleVerbsTest, WaitSaysWhatHasBecomeTrue) {
  deployment().set_current(true);
  EXPECT_EQ(Run({"wait", "deployment", "local", "--for", "serving"}).out,
            "deployment local is serving\n");
  coordinator_.workers.mutable_workers(0)->set_state(v1::WORKER_STATE_DRAINED);
  EXPECT_EQ(Run({"wait", "worker/w0", "--for", "drained", "-o", "json"}).out,
            "{\n  \"worker\": \"w0\",\n  \"condition\": \"drained\"\n}\n");
}

TEST_F(LifecycleVerbsTest, ApplyCanWaitUntilItServes) {
  const switchyard::testing::TempDir folder;
  const std::string file = folder.Join("local.yaml");
  folder.Write("local.yaml", "name: local\ncheckpoint: /models/toy\n");
  deployment().set_current(false);
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks == 3) deployment().set_current(true);  // After the look before the apply.
  };

  const SyctlResult other = Run({"apply", "-f", file, "--wait"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("which another apply made meanwhile"));

  *deployment().mutable_spec() = coordinator_.applied()[0].deployment();
  looks = 0;
  deployment().set_current(false);
  const SyctlResult applied = Run({"apply", "-f", file, "--wait"});

  EXPECT_EQ(applied.exit_code, 0) << applied.err;
  EXPECT_THAT(applied.out, HasSubstr("serving")) << "as it is after the wait";
  EXPECT_EQ(Run({"apply", "-f", file, "--wait", "--dry-run"}).exit_code, 2);
}

TEST_F(LifecycleVerbsTest, AWatchPrintsWhenSomethingChanges) {
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks == 3) {
      coordinator_.workers.mutable_workers(0)->set_state(v1::WORKER_STATE_DRAINED);
    }
  };
  std::vector<std::string> shown;
  const SyctlResult result = RunSyctl({"get", "workers", "-w", "--target", coordinator_.endpoint()},
                                      {.is_terminal = true, .width = 0},
                                      {.tell = nullptr, .live = [&](const std::string& text) {
                                         shown.push_back(text);
                                         return shown.size() < 2;
                                       }});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_THAT(shown[1], HasSubstr("drained"));
}

}  // namespace
}  // namespace switchyard::ctl
