#include "worker/device/host/aligned_buffer.h"

#include <cstdint>
#include <utility>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(AlignedBufferTest, GivesWritableBytesOnALineOrAHugePage) {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{100'000}, std::int64_t{2} << 20,
                                   (std::int64_t{5} << 20) + 3}) {
    SY_ASSERT_OK_AND_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::Allocate(bytes));

    const std::uintptr_t border = bytes >= (2 << 20) ? 2 << 20 : 64;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % border, 0U) << bytes;
    EXPECT_EQ(buffer.bytes(), bytes);
    for (std::int64_t i = 0; i < bytes; i += 4096) buffer.data()[i] = std::byte{1};
    buffer.data()[bytes - 1] = std::byte{2};
  }
}

TEST(AlignedBufferTest, MovesItsBytesAndLeavesNothingBehind) {
  SY_ASSERT_OK_AND_ASSIGN(AlignedBuffer first, AlignedBuffer::Allocate(64));
  SY_ASSERT_OK_AND_ASSIGN(AlignedBuffer second, AlignedBuffer::Allocate(3 << 20));
  const std::byte* const bytes = first.data();

  second = std::move(first);

  EXPECT_EQ(second.data(), bytes);
  EXPECT_EQ(second.bytes(), 64);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): what this test is about.
}

TEST(AlignedBufferTest, RefusesMoreThanTheMachineCanAddress) {
  EXPECT_THAT(AlignedBuffer::Allocate(std::int64_t{1} << 60),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
}

}  // namespace
}  // namespace switchyard
