#include "core/base/usable_cpus.h"

#include <thread>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(UsableCpusTest, AQuotaTakesCpusAway) {
  EXPECT_EQ(CpusUnderQuota(96, "200000 100000\n"), 2);
  EXPECT_EQ(CpusUnderQuota(96, "250000 100000\n"), 3) << "a share of a CPU counts as one";
  EXPECT_EQ(CpusUnderQuota(96, "5000 100000"), 1);
  EXPECT_EQ(CpusUnderQuota(4, "1600000 100000"), 4) << "a quota of more than there are";
  EXPECT_EQ(CpusUnderQuota(96, "400000\n 50000\n"), 8) << "the two files of version 1";
}

TEST(UsableCpusTest, WithoutAQuotaAllAreThere) {
  for (const char* text : {"max 100000\n", "-1\n 100000\n", " ", "", "0 0", "many", "1 2 3"}) {
    EXPECT_EQ(CpusUnderQuota(7, text), 7) << text;
  }
  EXPECT_EQ(CpusUnderQuota(0, ""), 1) << "a number of CPUs that is not known";
}

TEST(UsableCpusTest, OfThisProcessAreSome) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(UsableCpus(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace switchyard
