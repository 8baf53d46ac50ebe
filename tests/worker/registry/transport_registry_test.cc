#include "worker/registry/transport_registry.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "worker/transport/loopback/hub.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(TransportRegistryTest, MakesEveryTransportByTheNameThatItsOffersSay) {
  LoopbackHub hub;
  for (const absl::string_view name : TransportNames()) {
    SY_ASSERT_OK_AND_ASSIGN(auto transport, MakeTransport(name, {.hub = &hub}));

    SY_ASSERT_OK_AND_ASSIGN(auto link, transport->CreateLink({.slots = 1, .slot_bytes = 64}));
    EXPECT_EQ(link->offer().transport, name);
  }
}

TEST(TransportRegistryTest, NamesWhatItHasWhenAskedForWhatItHasNot) {
  const auto made = MakeTransport("pigeons", {});

  EXPECT_THAT(made, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(made.status().message()), ::testing::HasSubstr("ucx, loopback"));
}

}  // namespace
}  // namespace switchyard
