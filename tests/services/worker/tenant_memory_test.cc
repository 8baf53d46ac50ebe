#include "services/worker/tenant_memory.h"

#include <memory>
#include <optional>
#include <utility>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

Tenant Of(const char* name, std::optional<std::uint32_t> bytes) {
  return {.name = name, .ids = {}, .models = {}, .gateway_memory_bytes_max = bytes};
}

TEST(TenantMemoryTest, CallersOfATenantShareItsPart) {
  const auto all = std::make_shared<StepMemory>(100);
  TenantMemory memory(all);
  const Tenant red = Of("red", 40);
  const Tenant blue = Of("blue", 80);
  const auto one = memory.Of(&red);
  const auto two = memory.Of(&red);
  const auto other = memory.Of(&blue);
  StepMemory::Share a;
  StepMemory::Share b;
  StepMemory::Share c;

  EXPECT_TRUE(a.Grow(one.get(), 30));
  EXPECT_TRUE(one->Lacks(11));
  EXPECT_FALSE(b.Grow(two.get(), 11));
  EXPECT_EQ(all->used(), 30U) << "a refusal takes nothing of either";
  EXPECT_TRUE(c.Grow(other.get(), 70));
  EXPECT_FALSE(b.Grow(two.get(), 1)) << "all is taken";
  EXPECT_FALSE(two->Lacks(1));
  EXPECT_EQ(two->used(), 30U);

  a.ShrinkTo(0);
  EXPECT_TRUE(b.Grow(two.get(), 30));
  EXPECT_EQ(all->used(), 100U);
}

TEST(TenantMemoryTest, WhoHasNoLimitTakesOfAll) {
  const auto all = std::make_shared<StepMemory>(100);
  TenantMemory memory(all);
  const Tenant open = Of("open", std::nullopt);

  EXPECT_EQ(memory.Of(nullptr), all);
  EXPECT_EQ(memory.Of(&open), all);
}

TEST(TenantMemoryTest, ALimitChangesWithTheNextCaller) {
  TenantMemory memory(std::make_shared<StepMemory>(100));
  const Tenant before = Of("red", 40);
  const Tenant after = Of("red", 10);
  const auto one = memory.Of(&before);
  StepMemory::Share share;
  ASSERT_TRUE(share.Grow(one.get(), 30));

  const auto two = memory.Of(&after);
  EXPECT_EQ(one, two);
  EXPECT_EQ(one->bytes_max(), 10U);
  StepMemory::Share more;
  EXPECT_FALSE(more.Grow(two.get(), 1)) << "more is taken than is allowed now";
  share.ShrinkTo(5);
  EXPECT_TRUE(more.Grow(two.get(), 5));
}

TEST(TenantMemoryTest, APartGoesWithItsLastCaller) {
  TenantMemory memory(std::make_shared<StepMemory>(100));
  const Tenant red = Of("red", 40);
  std::weak_ptr<StepMemory> part = memory.Of(&red);
  EXPECT_TRUE(part.expired());
}

TEST(TenantMemoryTest, APartMayHaveMoreThanFourGibibytes) {
  TenantMemory memory(std::make_shared<StepMemory>(std::size_t{1} << 40));
  const Tenant tenant{.name = "t", .gateway_memory_bytes_max = std::uint64_t{1} << 36};

  EXPECT_EQ(memory.Of(&tenant)->bytes_max(), std::size_t{1} << 36);
}

}  // namespace
}  // namespace switchyard
