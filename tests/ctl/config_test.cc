#include "ctl/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ctl/syctl.h"
#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() { environment_.contexts_path = dir_.Join("syctl.yaml"); }
  SyctlResult Run(const std::vector<std::string>& words) {
    return RunSyctl(words, {true, 200}, {}, environment_);
  }
  std::string Out(const std::vector<std::string>& words) {
    SyctlResult result = Run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  TempDir dir_;
  Environment environment_;
  ScriptedCoordinator coordinator_;
};

TEST_F(ConfigTest, NamesCoordinatorsAndForgetsThem) {
  EXPECT_THAT(Out({"config", "get-contexts", "--color=never"}), HasSubstr("There are no contexts"));
  EXPECT_EQ(Out({"config", "set-context", "prod", "--target", "h:1", "--deployment", "chat"}),
            "context prod is created\n");
  EXPECT_EQ(Out({"config", "set-context", "test", "--target", "h:2"}), "context test is created\n");
  EXPECT_EQ(Out({"config", "get-contexts", "--color=never"}),
            "CURRENT  NAME  TARGET  DEPLOYMENT\n"
            "*        prod  h:1     chat\n"
            "-        test  h:2     -\n");
  EXPECT_EQ(Out({"config", "use-context", "test"}), "context test is in use\n");
  EXPECT_EQ(Out({"config", "current-context"}), "test\n");
  EXPECT_EQ(Out({"config", "set-context", "prod", "--deployment", "code"}),
            "context prod is changed\n");
  EXPECT_EQ(Out({"config", "get-contexts", "-o",
                 "jsonpath={.contexts[0].target} "
                 "{.contexts[0].deployment}"}),
            "h:1 code\n");
  EXPECT_EQ(Out({"config", "get-contexts", "-o", "name"}), "context/prod\ncontext/test\n");
  EXPECT_EQ(Out({"config", "delete-context", "test"}), "context test is forgotten\n");
  EXPECT_THAT(Run({"config", "current-context"}).err, HasSubstr("no context is in use"));
}

TEST_F(ConfigTest, RefusesWhatIsNotThere) {
  EXPECT_THAT(Run({"config", "set-context", "a"}).err, HasSubstr("give its --target"));
  EXPECT_THAT(Run({"config", "use-context", "a"}).err, HasSubstr("unknown context a"));
  EXPECT_THAT(Run({"config", "delete-context", "a"}).err, HasSubstr("unknown context a"));
  const SyctlResult unknown = Run({"--context", "a", "get", "workers"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("unknown context a"));
}

TEST_F(ConfigTest, AFileThatIsNotYamlIsAMistakeOfUsage) {
  dir_.Write("syctl.yaml", "contexts: [1,\n");

  const SyctlResult result = Run({"config", "get-contexts"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("syctl.yaml:2: is not YAML"));
}

TEST_F(ConfigTest, FlagThenContextThenVariableThenCurrentContext) {
  const std::string nobody = "127.0.0.1:1";
  const std::vector<std::string> get{"get", "workers", "-o", "name"};
  const auto with = [&get](std::vector<std::string> words) {
    words.insert(words.end(), get.begin(), get.end());
    return words;
  };
  Out({"config", "set-context", "there", "--target", coordinator_.endpoint()});
  Out({"config", "set-context", "nowhere", "--target", nobody});
  EXPECT_EQ(Out(get), "worker/w0\nworker/w1\n");
  EXPECT_EQ(Run(with({"--context", "nowhere"})).exit_code, 1);
  EXPECT_EQ(Run(with({"--target", nobody})).exit_code, 1);
  environment_.target = nobody;
  EXPECT_EQ(Run(get).exit_code, 1);
  EXPECT_EQ(Run(with({"--context", "there"})).exit_code, 0);
  EXPECT_EQ(Run(with({"--target", coordinator_.endpoint()})).exit_code, 0);
  environment_.target = "nothing";
  EXPECT_THAT(Run(get).err, HasSubstr("SYCTL_TARGET: \"nothing\" is not \"host:port\""));
  EXPECT_EQ(Run(get).exit_code, 2);
}

TEST_F(ConfigTest, DeploymentOfTheContextIsTheOneThatIsMeant) {
  Out({"config", "set-context", "a", "--target", coordinator_.endpoint(), "--deployment", "other"});

  EXPECT_THAT(Run({"get", "revisions"}).err, HasSubstr("other"));
  EXPECT_EQ(Run({"get", "revisions", "local"}).exit_code, 0);
  EXPECT_EQ(Run({"get", "revisions", "--deployment", "local"}).exit_code, 0);
  // A target of its own is another coordinator, where the deployment means nothing.
  EXPECT_THAT(Run({"get", "revisions", "--target", coordinator_.endpoint()}).err,
              Not(HasSubstr("deployment  other")));
}

TEST_F(ConfigTest, ABrokenFileStopsNothingThatDoesWithoutIt) {
  dir_.Write("syctl.yaml", "contexts: 7\n");

  EXPECT_EQ(Run({"get", "workers"}).exit_code, 2);
  EXPECT_EQ(Run({"get", "workers", "--target", coordinator_.endpoint()}).exit_code, 0);
  EXPECT_EQ(Run({"version", "--client"}).exit_code, 0);
}

}  // namespace
}  // namespace switchyard::ctl
