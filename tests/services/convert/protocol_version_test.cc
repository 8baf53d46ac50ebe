#include "services/convert/protocol_version.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/protocol_version.h"
#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/session.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::RandomMessages;

constexpr std::uint32_t kOther = kProtocolVersion + 5;

// Refused for its version, whatever else is wrong with it, and with both versions.
void ExpectOtherVersion(const absl::Status& status, absl::string_view who, std::uint32_t peer) {
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  EXPECT_TRUE(absl::StrContains(status.message(),
                                absl::StrCat("the ", who, " has protocol version ", peer,
                                             ", the refusing process version ", kProtocolVersion)))
      << status;
}

TEST(ProtocolVersionTest, NamesBothVersions) {
  SY_EXPECT_OK(CheckProtocolVersion("worker", kProtocolVersion));

  ExpectOtherVersion(CheckProtocolVersion("worker", kOther), "worker", kOther);
  ExpectOtherVersion(CheckProtocolVersion("source", 0), "source", 0);
}

TEST(ProtocolVersionTest, EveryFirstMessageCarriesIt) {
  RandomMessages random(3);
  v1::SessionRequest registers = ToProto(WorkerMessage(
      Register{"w0", random.rng().NextId<Incarnation>(), "h:1", random.Capabilities(), {}}));
  v1::SessionResponse registered = ToProto(CoordinatorMessage(Registered{random.Time()}));
  v1::OpenSessionRequest opens = ToProto(random.Order());
  v1::OpenSessionResponse granted = ToProto(random.Grant());
  v1::AttachRequest attaches = ToProto(AttachMessage(random.Attach()));
  v1::AttachResponse attached =
      ToProto(AttachAnswer(AttachGrant{random.Ring(), random.Text(), random.Text()}));
  SY_EXPECT_OK(FromProto(registers));
  SY_EXPECT_OK(FromProto(registered));
  SY_EXPECT_OK(FromProto(opens));
  SY_EXPECT_OK(FromProto(granted));
  SY_EXPECT_OK(FromProto(attaches));
  SY_EXPECT_OK(FromProto(attached));

  registers.mutable_register_()->set_protocol_version(kOther);
  registers.mutable_register_()->set_incarnation("another form");
  registered.mutable_registered()->clear_protocol_version();
  opens.set_protocol_version(kOther);
  granted.set_protocol_version(kOther);
  granted.clear_grant_signature();
  attaches.mutable_open()->mutable_reply_ring()->set_protocol_version(kOther);
  attached.mutable_opened()->mutable_request_ring()->clear_protocol_version();

  ExpectOtherVersion(FromProto(registers).status(), "worker", kOther);
  ExpectOtherVersion(FromProto(registered).status(), "coordinator", 0);
  ExpectOtherVersion(FromProto(opens).status(), "source", kOther);
  ExpectOtherVersion(FromProto(granted).status(), "coordinator", kOther);
  ExpectOtherVersion(FromProto(attaches).status(), "source", kOther);
  ExpectOtherVersion(FromProto(attached).status(), "worker", 0);
}

}  // namespace
}  // namespace switchyard
