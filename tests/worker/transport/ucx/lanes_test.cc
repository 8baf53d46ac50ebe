#include "worker/transport/ucx/lanes.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(LanesTest, ReadsTheLanesFromWhatUcxPrints) {
  const std::string text =
      "#\n# UCP endpoint \n#\n"
      "#               peer: <no debug data>\n"
      "#                 lane[0]:  1:tcp/lo.0 md[1]        -> md[1]/tcp/sysdev[255] am wireup\n"
      "#                 lane[1]:  7:rc_mlx5/mlx5_0:1.0 md[3]  -> md[3]/ib/sysdev[0] rma_bw#0\n"
      "#\n#                 am_send: 0..<egr/short>..8185..(inf)\n";

  EXPECT_EQ(ParseLanes(text), "tcp/lo,rc_mlx5/mlx5_0:1");
}

TEST(LanesTest, IsEmptyWhenThereIsNothingToRead) {
  EXPECT_EQ(ParseLanes(""), "");
  EXPECT_EQ(ParseLanes("# lane[0]:\n# lane[1\n"), "");
}

}  // namespace
}  // namespace switchyard
