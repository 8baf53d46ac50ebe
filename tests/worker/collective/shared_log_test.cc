#include "worker/collective/shared_log.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;

const LoggedStep kStep{.group = 3, .layer = LayerId{7}, .cover = 5, .epoch = 11};

TEST(SharedLogTest, WhoHasTheKeySeesTheSameSteps) {
  SystemRng rng;
  const testing::TempDir dir;
  for (const std::string& directory : {std::string(), dir.path()}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto made, SharedLog::Make(directory, &rng));
    SY_ASSERT_OK_AND_ASSIGN(const auto opened, SharedLog::Open(made->key(), directory));
    SY_ASSERT_OK_AND_ASSIGN(const auto again, SharedLog::Open(opened->key(), directory));

    ASSERT_EQ(opened->log().Append(0, kStep), StepLog::Appended::kYes);

    EXPECT_EQ(made->log().At(0), kStep);
    EXPECT_EQ(again->log().At(0), kStep);
    EXPECT_EQ(again->log().end(), 1U);
  }
}

// Those that have it open go on with it, and whoever comes later is told.
TEST(SharedLogTest, ItsMakerMayEnd) {
  SystemRng rng;
  SY_ASSERT_OK_AND_ASSIGN(auto made, SharedLog::Make("", &rng));
  const std::string key = made->key();
  SY_ASSERT_OK_AND_ASSIGN(const auto opened, SharedLog::Open(key, ""));
  made.reset();

  EXPECT_EQ(opened->log().Append(0, kStep), StepLog::Appended::kYes);
  EXPECT_EQ(opened->log().At(0), kStep);
  EXPECT_THAT(SharedLog::Open(key, "").status(),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
}

TEST(SharedLogTest, WhoHasItOpenOffersItOn) {
  SystemRng rng;
  const testing::TempDir dir;
  for (const std::string& directory : {std::string(), dir.path()}) {
    SY_ASSERT_OK_AND_ASSIGN(auto made, SharedLog::Make(directory, &rng));
    SY_ASSERT_OK_AND_ASSIGN(auto opened, SharedLog::Open(made->key(), directory));
    SY_ASSERT_OK(opened->Offer(directory, &rng));
    EXPECT_NE(opened->key(), made->key());
    EXPECT_EQ(opened->id(), made->id());
    SY_ASSERT_OK_AND_ASSIGN(const std::uint64_t id, SharedLog::IdOf(opened->key()));
    EXPECT_EQ(id, made->id());
    made.reset();

    SY_ASSERT_OK_AND_ASSIGN(const auto third, SharedLog::Open(opened->key(), directory));
    SY_ASSERT_OK(third->Offer(directory, &rng));
    opened.reset();
    SY_ASSERT_OK_AND_ASSIGN(const auto fourth, SharedLog::Open(third->key(), directory));
    ASSERT_EQ(fourth->log().Append(0, kStep), StepLog::Appended::kYes);
    EXPECT_EQ(third->log().At(0), kStep);
    SY_ASSERT_OK_AND_ASSIGN(const auto other, SharedLog::Make(directory, &rng));
    EXPECT_NE(other->id(), third->id());
  }
}

TEST(SharedLogTest, KeysThatAreNoneAreRefused) {
  SystemRng rng;
  SY_ASSERT_OK_AND_ASSIGN(const auto made, SharedLog::Make("", &rng));
  std::string key = made->key();
  for (const std::string& bad : {std::string(), std::string("x"), key.substr(1), key + "x"}) {
    EXPECT_FALSE(SharedLog::Open(bad, "").ok());
    EXPECT_FALSE(SharedLog::IdOf(bad).ok());
  }
  key[key.size() / 2] = static_cast<char>(key[key.size() / 2] ^ 1);
  EXPECT_FALSE(SharedLog::Open(key, "").ok());
}

}  // namespace
}  // namespace switchyard
