#include "core/base/unique_handle.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Which handles were closed, in order.
std::vector<int>& Closed() {
  static std::vector<int> closed;
  return closed;
}

struct RecordingTraits {
  using Handle = int;
  static int Invalid() { return -1; }
  static void Close(int handle) { Closed().push_back(handle); }
};
using RecordingHandle = UniqueHandle<RecordingTraits>;

static_assert(!std::is_copy_constructible_v<RecordingHandle>);
static_assert(std::is_nothrow_move_constructible_v<RecordingHandle>);

class UniqueHandleTest : public ::testing::Test {
 protected:
  void SetUp() override { Closed().clear(); }
};

TEST_F(UniqueHandleTest, ClosesOnceAtTheEndOfItsLife) {
  {
    const RecordingHandle handle(7);
    EXPECT_TRUE(handle.valid());
    EXPECT_EQ(handle.get(), 7);
    EXPECT_THAT(Closed(), IsEmpty());
  }
  EXPECT_THAT(Closed(), ElementsAre(7));
}

TEST_F(UniqueHandleTest, EmptyClosesNothing) {
  {
    const RecordingHandle handle;
    EXPECT_FALSE(handle.valid());
  }
  EXPECT_THAT(Closed(), IsEmpty());
}

TEST_F(UniqueHandleTest, MovingHandsTheDutyOver) {
  {
    RecordingHandle first(1);
    RecordingHandle second(std::move(first));
    RecordingHandle third(3);

    third = std::move(second);

    EXPECT_EQ(third.get(), 1);
    EXPECT_THAT(Closed(), ElementsAre(3));
  }
  EXPECT_THAT(Closed(), ElementsAre(3, 1));
}

TEST_F(UniqueHandleTest, AssigningItselfKeepsIt) {
  RecordingHandle handle(5);
  RecordingHandle& same = handle;

  handle = std::move(same);

  EXPECT_EQ(handle.get(), 5);
  EXPECT_THAT(Closed(), IsEmpty());
}

TEST_F(UniqueHandleTest, ReleaseGivesUpAndResetReplaces) {
  {
    RecordingHandle handle(1);
    EXPECT_EQ(handle.release(), 1);
    EXPECT_FALSE(handle.valid());

    handle.reset(2);
    handle.reset(3);
  }
  EXPECT_THAT(Closed(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace switchyard
