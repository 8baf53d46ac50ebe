#include "services/coordinator/load_query.h"

#include <numeric>

#include "gtest/gtest.h"

#include "services/grpc/grpc_constants.h"
#include "tests/services/coordinator/large_view.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::LargeView;

std::uint32_t At(const std::string& bytes, std::size_t index) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) {
    number = number << 8 | static_cast<std::uint8_t>(bytes.at(4 * index + i));
  }
  return number;
}

TEST(LoadQueryTest, TablesAreThoseOfTheHistory) {
  const LargeView large(3);
  v1::GetLoadRequest request;
  request.set_deployment("chat");
  request.set_limit(1);

  SY_ASSERT_OK_AND_ASSIGN(const v1::GetLoadResponse load,
                          GetLoad(large.view, request, large.Sources().load));

  EXPECT_EQ(load.deployment(), "chat");
  EXPECT_EQ(load.layers_size(), testing::kLargeLayers);
  EXPECT_EQ(load.experts(), static_cast<std::uint32_t>(testing::kLargeExperts));
  EXPECT_EQ(load.first(), 1U);
  EXPECT_EQ(load.last(), 3U);
  ASSERT_EQ(load.samples_size(), 1);
  const auto expected = large.load.View("chat", {.limit = 1}, large.now).samples.at(0);
  EXPECT_EQ(load.samples(0).number(), 3U);
  ASSERT_EQ(load.samples(0).rows().size(), 4 * expected->rows.size());
  for (std::size_t i = 0; i < expected->rows.size(); ++i) {
    ASSERT_EQ(At(load.samples(0).rows(), i), expected->rows[i]);
  }
  ASSERT_EQ(load.samples(0).workers_size(), testing::kLargeWorkers);
  EXPECT_EQ(At(load.samples(0).workers(4).rows(), 60), expected->workers[4].rows[60]);
  const auto& times = load.samples(0).workers(4).times();
  ASSERT_EQ(times.size(), 2);
  EXPECT_EQ(times[0].kind(), v1::WORK_KIND_DECODE);
  EXPECT_EQ(std::accumulate(times[0].step().buckets().begin(), times[0].step().buckets().end(), 0U),
            200U);
  EXPECT_TRUE(times[0].has_queue());
  EXPECT_EQ(load.samples(0).workers(testing::kOldWorker).times_size(), 0);
}

// An answer is bounded however much is kept, and successive questions get all of it.
TEST(LoadQueryTest, AnswersAreBoundedAndComplete) {
  const LargeView large(100);
  v1::GetLoadRequest request;
  request.set_deployment("chat");
  request.set_limit(1000);
  int samples = 0;
  for (int asked = 0; asked < 100; ++asked) {
    SY_ASSERT_OK_AND_ASSIGN(const v1::GetLoadResponse load,
                            GetLoad(large.view, request, large.Sources().load));
    EXPECT_LE(load.ByteSizeLong(), kControlMessageBytesMax);
    EXPECT_LE(load.samples_size(), static_cast<int>(kLoadSamplesMax));
    samples += load.samples_size();
    if (load.samples_size() == 0) break;
    request.set_before(load.samples(0).number());
  }
  EXPECT_EQ(samples, 100);
}

TEST(LoadQueryTest, ADeploymentThatIsNotThereIsRefused) {
  const LargeView large(1);
  v1::GetLoadRequest request;
  request.set_deployment("nobody");

  EXPECT_THAT(GetLoad(large.view, request, large.Sources().load),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));

  request.set_deployment("batch");
  SY_ASSERT_OK_AND_ASSIGN(const v1::GetLoadResponse none,
                          GetLoad(large.view, request, large.Sources().load));
  EXPECT_EQ(none.samples_size(), 0);
  EXPECT_EQ(none.last(), 0U);
}

}  // namespace
}  // namespace switchyard
