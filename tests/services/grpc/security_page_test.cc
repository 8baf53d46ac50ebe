// docs/SECURITY.md against the code: it says of each call what a stranger can do with it, and that
// nothing is encrypted for as long as that is so.

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

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

// A new call has no place on the page until somebody has thought about it.
TEST(SecurityPageTest, SaysOfEachCallWhatAStrangerCanDo) {
  std::set<std::string> documented;
  for (const auto& cells : docs::TableBelow(kPage, {"service", "calls", "effect", "needs"})) {
    ASSERT_EQ(cells.size(), 4U) << absl::StrJoin(cells, "|");
    EXPECT_FALSE(cells[2].empty() || cells[3].empty()) << cells[1];
    const std::vector<std::string> calls = absl::StrSplit(cells[1], ", ");
    for (const std::string& call : calls) {
      EXPECT_TRUE(documented.insert(absl::StrCat(cells[0], ".", call)).second) << call;
    }
  }

  EXPECT_THAT(documented, ::testing::ContainerEq(CallsOfTheCode()));
}

// The page's first sentence has to change with the first port that is encrypted.
TEST(SecurityPageTest, SaysThatNothingIsEncryptedAsLongAsNothingIs) {
  bool encrypted = false;
  for (const tidy::SourceFile& file : docs::Repository().files()) {
    if (!file.IsCpp() || tidy::IsBelow(file.path, "tests")) continue;
    for (const std::string& line : file.code) {
      encrypted |= absl::StrContains(line, "SslCredentials") ||
                   absl::StrContains(line, "SslServerCredentials") ||
                   absl::StrContains(line, "TlsCredentials") ||
                   absl::StrContains(line, "TlsServerCredentials");
    }
  }
  const std::string page = absl::StrJoin(docs::LinesOf(kPage), "\n");

  EXPECT_EQ(absl::StrContains(page, "Nothing is encrypted, no caller is authenticated"),
            !encrypted);
}

}  // namespace
}  // namespace switchyard
