#include "services/coordinator/encoded_plans.h"

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/convert/session.h"
#include "services/grpc/grpc_constants.h"
#include "switchyard/v1/coordinator.pb.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

std::shared_ptr<PlanUpdate> UpdateOf(std::uint64_t epoch) {
  auto update = std::make_shared<PlanUpdate>();
  update->plan.deployment = "demo";
  update->plan.epoch = Epoch{epoch};
  update->lost = {Incarnation{epoch, 1}};
  return update;
}

// Where the first slice of a buffer lies.
const void* MemoryOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  return slices.empty() ? nullptr : slices[0].begin();
}

TEST(EncodedPlansTest, AreTheMessageThatWatchersDecode) {
  EncodedPlans plans;
  const auto update = UpdateOf(7);

  SY_ASSERT_OK_AND_ASSIGN(grpc::ByteBuffer bytes, plans.Of(update));

  v1::WatchPlanResponse decoded;
  ASSERT_TRUE(grpc::SerializationTraits<v1::WatchPlanResponse>::Deserialize(&bytes, &decoded).ok());
  EXPECT_EQ(decoded.SerializeAsString(), ToProto(*update).SerializeAsString());
}

TEST(EncodedPlansTest, AnUpdateIsEncodedOnceForAllOfItsWatchers) {
  EncodedPlans plans;
  const auto first = UpdateOf(1);
  const auto second = UpdateOf(2);

  SY_ASSERT_OK_AND_ASSIGN(const grpc::ByteBuffer one, plans.Of(first));
  SY_ASSERT_OK_AND_ASSIGN(const grpc::ByteBuffer other, plans.Of(second));
  SY_ASSERT_OK_AND_ASSIGN(const grpc::ByteBuffer again, plans.Of(first));

  EXPECT_EQ(MemoryOf(one), MemoryOf(again));
  EXPECT_NE(MemoryOf(one), MemoryOf(other));
}

TEST(EncodedPlansTest, AnUpdateAtTheAddressOfAFormerOneIsEncodedAnew) {
  EncodedPlans plans;
  // The same memory, as an allocator may give it out again.
  PlanUpdate memory = *UpdateOf(1);
  const auto unowned = [](PlanUpdate* /*update*/) {};
  auto update = std::shared_ptr<PlanUpdate>(&memory, unowned);
  SY_ASSERT_OK_AND_ASSIGN(const grpc::ByteBuffer first, plans.Of(update));
  update.reset();
  memory = *UpdateOf(300);
  update = std::shared_ptr<PlanUpdate>(&memory, unowned);

  SY_ASSERT_OK_AND_ASSIGN(const grpc::ByteBuffer second, plans.Of(update));

  EXPECT_NE(first.Length(), second.Length());
}

TEST(EncodedPlansTest, OneThatIsTooLargeIsRefused) {
  EncodedPlans plans;
  const auto update = UpdateOf(1);
  update->plan.deployment.assign(kControlMessageBytesMax, 'x');

  EXPECT_THAT(plans.Of(update),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge));
}

}  // namespace
}  // namespace switchyard
