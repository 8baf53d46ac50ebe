#include "services/convert/control.h"

#include <functional>

#include "gtest/gtest.h"

#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;
using testing::ExpectRoundTrips;
using testing::RandomMessages;

v1::SessionRequest ARegister() {
  RandomMessages random(5);
  Register message{"w0", random.rng().NextId<Incarnation>(), "h:1", random.Capabilities(), {}};
  message.capabilities.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8};
  message.resident = {{"d", Epoch{1}, random.Digest(), true}, {"d", Epoch{2}, {}, false}};
  message.grant_keys = {{"d", {random.Key(), random.Key()}}};
  return ToProto(WorkerMessage(message));
}

TEST(ConvertControlTest, WorkerMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.FromWorker(); });
}

TEST(ConvertControlTest, CoordinatorMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.FromCoordinator(); });
}

TEST(ConvertControlTest, NamesThePathOfTheFieldInRegister) {
  const std::vector<std::pair<std::string, std::function<void(v1::Register*)>>> cases = {
      {"SessionRequest.register.incarnation", [](auto* m) { m->set_incarnation("abc"); }},
      {"SessionRequest.register.incarnation",
       [](auto* m) { m->set_incarnation(std::string(32, 'g')); }},
      {"SessionRequest.register.endpoint", [](auto* m) { m->set_endpoint("0.0.0.0:7000"); }},
      {"SessionRequest.register.endpoint", [](auto* m) { m->set_endpoint("nowhere"); }},
      {"SessionRequest.register.capabilities", [](auto* m) { m->clear_capabilities(); }},
      {"SessionRequest.register.capabilities.device",
       [](auto* m) { m->mutable_capabilities()->clear_device(); }},
      {"SessionRequest.register.capabilities.wire_dtypes[1]",
       [](auto* m) {
         m->mutable_capabilities()->set_wire_dtypes(1, static_cast<v1::DispatchDtype>(99));
       }},
      {"SessionRequest.register.capabilities.max_top_k",
       [](auto* m) { m->mutable_capabilities()->set_max_top_k(1U << 31); }},
      {"SessionRequest.register.capabilities.weight_bytes_max",
       [](auto* m) { m->mutable_capabilities()->set_weight_bytes_max(1ULL << 63); }},
      {"SessionRequest.register.resident[1].plan_hash",
       [](auto* m) { m->mutable_resident(1)->set_plan_hash("short"); }},
      {"SessionRequest.register.grant_keys[0].keys[1]",
       [](auto* m) { m->mutable_grant_keys(0)->set_keys(1, "short"); }},
  };
  for (const auto& [field, damage] : cases) {
    v1::SessionRequest proto = ARegister();
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_register_());

    ExpectRefuses(FromProto(proto), field);
  }
}

TEST(ConvertControlTest, ANackNeedsAnError) {
  v1::SessionRequest proto = ToProto(
      WorkerMessage(PrepareNack{"d", Epoch{1}, 2, absl::DataLossError("tensor x is wrong")}));
  proto.mutable_prepare_nack()->clear_error();
  ExpectRefuses(FromProto(proto), "SessionRequest.prepare_nack.error");

  proto.mutable_prepare_nack()->mutable_error()->set_code(0);
  ExpectRefuses(FromProto(proto), "SessionRequest.prepare_nack.error");
}

}  // namespace
}  // namespace switchyard
