#include "services/security/access.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "switchyard/v1/coordinator.pb.h"
#include "switchyard/v1/expert.pb.h"
#include "switchyard/v1/worker_control.pb.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

// The table that people decided on, written down apart from the code's.
std::map<std::string, std::set<std::string>> Decided() {
  std::map<std::string, std::set<std::string>> out;
  std::ifstream in(SY_ACCESS_TABLE);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    EXPECT_EQ(cells.size(), 2U) << line;
    out[cells[0]] = absl::StrSplit(cells[1], ' ');
  }
  return out;
}

std::set<std::string> MethodsOfOurServices() {
  const google::protobuf::FileDescriptor* files[] = {
      v1::ApplyDeploymentRequest::descriptor()->file(), v1::AttachRequest::descriptor()->file(),
      v1::SessionRequest::descriptor()->file()};
  std::set<std::string> out;
  for (const auto* file : files) {
    EXPECT_GT(file->service_count(), 0) << file->name();
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        out.insert(absl::StrCat("/", file->service(i)->full_name(), "/",
                                file->service(i)->method(j)->name()));
      }
    }
  }
  return out;
}

TEST(AccessTest, AWorkerJoinsItsOwnPools) {
  SY_ASSERT_OK_AND_ASSIGN(
      const IdentityTable table,
      IdentityTable::Create({{"spiffe://d/any", {Role::kWorker}},
                             {"spiffe://d/cpu", {Role::kWorker}, {"cpu", "spare"}}}));
  for (const char* pool : {"", "cpu", "gpu"}) {
    SY_EXPECT_OK(CheckPool(table, "spiffe://d/any", pool));
  }
  SY_EXPECT_OK(CheckPool(table, "spiffe://d/cpu", "cpu"));
  SY_EXPECT_OK(CheckPool(table, "spiffe://d/cpu", "spare"));
  for (const char* pool : {"", "gpu", "cp", "cpu2", "CPU", "cpu or spare"}) {
    EXPECT_THAT(CheckPool(table, "spiffe://d/cpu", pool),
                testing::FailsWith(absl::StatusCode::kPermissionDenied, Reason::kTransport))
        << pool;
  }
  EXPECT_THAT(CheckPool(table, "spiffe://d/nobody", "cpu"),
              testing::FailsWith(absl::StatusCode::kUnauthenticated, Reason::kTransport));
}

TEST(AccessTest, IsTheDecidedTable) {
  std::map<std::string, std::set<std::string>> code;
  for (const MethodAccess& row : AccessTable()) {
    for (std::size_t i = 0; i < kRoleCount; ++i) {
      const auto role = static_cast<Role>(i);
      if (row.roles.Has(role)) code[row.method].insert(std::string(RoleName(role)));
    }
  }
  EXPECT_EQ(code, Decided());
}

TEST(AccessTest, DecidesAboutEveryMethodOfOurServices) {
  const std::map<std::string, std::set<std::string>> decided = Decided();
  for (const std::string& method : MethodsOfOurServices()) {
    EXPECT_TRUE(decided.contains(method)) << method;
  }
}

TEST(AccessTest, ClosesWhatItDoesNotKnow) {
  const Roles all{Role::kCoordinator, Role::kWorker, Role::kSource, Role::kOperator,
                  Role::kObserver};
  for (const char* method :
       {"", "/", "/switchyard.v1.CoordinatorService/New",
        "switchyard.v1.CoordinatorService/GetPlan", "/switchyard.v1.CoordinatorService/GetPlan/"}) {
    EXPECT_FALSE(MayCall(all, method)) << method;
    EXPECT_EQ(WhoMayCall(method), "nobody") << method;
  }
  EXPECT_FALSE(MayCall({}, "/switchyard.v1.CoordinatorService/GetPlan"));
  EXPECT_EQ(WhoMayCall("/switchyard.v1.CoordinatorService/GetPlan"), "operator or observer");
}

}  // namespace
}  // namespace switchyard
