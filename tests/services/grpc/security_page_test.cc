// docs/SECURITY.md against the code: it says of each call what a caller can do with it, and which
// roles may make it.

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "services/security/access.h"
#include "switchyard/v1/coordinator.pb.h"
#include "switchyard/v1/expert.pb.h"
#include "switchyard/v1/worker_control.pb.h"
#include "tests/docs/pages.h"

namespace switchyard {
namespace {

constexpr char kPage[] = "docs/SECURITY.md";

// "ExpertService.Attach" of every call that a port of the programs serves, but for the standard
// services of gRPC.
std::set<std::string> CallsOfTheCode() {
  std::set<std::string> calls;
  for (const google::protobuf::Descriptor* any :
       {v1::GetVersionRequest::descriptor(), v1::Register::descriptor(),
        v1::AttachRequest::descriptor()}) {
    const google::protobuf::FileDescriptor& file = *any->file();
    for (int i = 0; i < file.service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file.service(i);
      for (int m = 0; m < service.method_count(); ++m) {
        calls.insert(absl::StrCat(service.name(), ".", service.method(m)->name()));
      }
    }
  }
  return calls;
}

// A new call has no place on the page until somebody has thought about it. The roles are those of
// the code.
TEST(SecurityPageTest, SaysOfEachCallWhatItDoesAndWhoMayMakeIt) {
  std::set<std::string> documented;
  for (const auto& cells :
       docs::TableBelow(kPage, {"service", "calls", "effect", "needs", "roles"})) {
    ASSERT_EQ(cells.size(), 5U) << absl::StrJoin(cells, "|");
    EXPECT_FALSE(cells[2].empty() || cells[3].empty()) << cells[1];
    const std::vector<std::string> calls = absl::StrSplit(cells[1], ", ");
    for (const std::string& call : calls) {
      EXPECT_TRUE(documented.insert(absl::StrCat(cells[0], ".", call)).second) << call;
      EXPECT_EQ(absl::StrReplaceAll(cells[4], {{", ", " or "}}),
                WhoMayCall(absl::StrCat("/switchyard.v1.", cells[0], "/", call)))
          << call;
    }
  }

  EXPECT_THAT(documented, ::testing::ContainerEq(CallsOfTheCode()));
}

}  // namespace
}  // namespace switchyard
