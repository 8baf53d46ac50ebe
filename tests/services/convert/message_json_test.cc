#include "services/convert/message_json.h"

#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

TEST(MessageJsonTest, ErrorsHaveTheirReasonAndIds) {
  v1::ListDeploymentsResponse list;
  *list.add_deployments()->mutable_problem() = StatusToProto(
      MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "wait", {{"worker", "w\"3"}}));

  const std::string json = MessageJson(list);

  EXPECT_THAT(json, HasSubstr("\"message\":\"wait\""));
  EXPECT_THAT(json, HasSubstr("\"reason\":\"NOT_READY\""));
  EXPECT_THAT(json, HasSubstr("\"worker\":\"w\\\"3\""));
}

TEST(MessageJsonTest, IsReadBackAsTheSameMessage) {
  v1::Event event;
  event.set_number(1'000'000'000'000'000'001U);
  event.set_object(v1::EVENT_OBJECT_WORKER);
  event.mutable_first()->set_seconds(1'700'000'000);
  event.set_message("<b>\xC3\xA9\n\"");
  v1::Event back;

  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(MessageJson(event), &back).ok());

  EXPECT_EQ(back.SerializeAsString(), event.SerializeAsString());
}

}  // namespace
}  // namespace switchyard
