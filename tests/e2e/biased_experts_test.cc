// Unquantized experts with biases, by every binding and in both modes. Where an expert has a bias,
// rows that nobody asked for would not be zero, and what stands in memory behind the rows that were
// must not be seen.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "tests/e2e/checkpoint_edit.h"
#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::kExperts;
using testing::kHidden;
using testing::kShippedModel;
using testing::kTopK;
using testing::RunStep;

constexpr double kPooledDiffMax = 1.5e-5;
constexpr std::int32_t kLayer = 1;
constexpr std::int32_t kTokens = 21;
constexpr Bf16 kNan = 0x7fc1;

std::string PrefixOf(std::int32_t expert) {
  return absl::StrCat("model.layers.", kLayer, ".mlp.experts.", expert, ".");
}

// The shipped model; the experts of one layer have random biases, as large as what they add to.
void CopyWithBiases(const std::string& folder) {
  std::filesystem::copy(kShippedModel, folder);
  const std::string path = folder + "/model.safetensors";
  testing::TensorFile file(path);
  SeededRng rng(17);
  for (std::int32_t e = 0; e < kExperts; ++e) {
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string name = PrefixOf(e) + projection;
      const auto rows = file.header.at(name + ".weight").at("shape")[0].get<std::size_t>();
      std::vector<Bf16> bias;
      for (std::size_t i = 0; i < rows; ++i) {
        bias.push_back(FloatToBf16(static_cast<float>(rng.Uniform() * 2 - 1)));
      }
      const std::size_t begin = file.data.size();
      file.data.append(reinterpret_cast<const char*>(bias.data()), rows * sizeof(Bf16));
      file.header[name + ".bias"] = {
          {"dtype", "BF16"}, {"shape", {rows}}, {"data_offsets", {begin, file.data.size()}}};
    }
  }
  file.Write(path);
}

std::vector<double> MatVecPlus(std::span<const Bf16> w, const std::vector<float>& bias,
                               const std::vector<double>& x) {
  std::vector<double> y = testing::MatVec(w, x);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += static_cast<double>(bias.at(i));
  return y;
}

// dispatch-semantics 3.3, in double.
std::vector<double> DefinitionOf(const Checkpoint& checkpoint, const Batch& batch) {
  std::vector<double> y(batch.x.size(), 0.0);
  for (std::size_t pair = 0; pair < batch.ids.size(); ++pair) {
    if (batch.ids[pair] < 0) continue;
    const auto expert = LoadExpert(checkpoint, LayerId{kLayer}, ExpertId{batch.ids[pair]});
    SY_EXPECT_OK(expert.status());
    const std::size_t token = pair / kTopK;
    std::vector<double> x;
    for (std::size_t i = 0; i < kHidden; ++i) {
      x.push_back(static_cast<double>(Bf16ToFloat(batch.x[token * kHidden + i])));
    }
    const auto& biases = expert->biases;  // gate, up, down
    std::vector<double> h = MatVecPlus(expert->gate, biases[0], x);
    const std::vector<double> up = MatVecPlus(expert->up, biases[1], x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = testing::Silu(h[i]) * up[i];
    const std::vector<double> row = MatVecPlus(expert->down, biases[2], h);
    for (std::size_t i = 0; i < kHidden; ++i) {
      y[token * kHidden + i] += static_cast<double>(batch.weights[pair]) * row[i];
    }
  }
  return y;
}

// A token without experts, between others; its row is NaN.
void LeaveOut(std::size_t token, Batch* batch) {
  std::fill_n(batch->ids.begin() + static_cast<std::ptrdiff_t>(token * kTopK), kTopK, -1);
  std::fill_n(batch->x.begin() + static_cast<std::ptrdiff_t>(token * kHidden), kHidden, kNan);
}

using Case = std::tuple<BindingChoice, DispatchMode>;

class BiasedExpertsTest : public testing::Processes, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    checkpoint_ = folder_.path() + "/model";
    CopyWithBiases(checkpoint_);
    LocalDeploymentOptions options;
    options.checkpoint = checkpoint_;
    Deploy(2, std::move(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect("auto"));
    OpenSessionRequest order;
    order.phase = Phase::kMixed;
    std::tie(order.binding, order.mode) = GetParam();
    order.max_tokens = 64;
    SY_ASSERT_OK_AND_ASSIGN(session_, client_->OpenWhenReady(order, testing::kReadyTimeout));
  }

  testing::TempDir folder_;
  std::string checkpoint_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<MoeSession> session_;
};

// R70 and, in normal, R72.
TEST_P(BiasedExpertsTest, GiveTheDefinitionAndZerosWhereNobodyAsked) {
  SY_ASSERT_OK_AND_ASSIGN(const auto opened, Checkpoint::Open(checkpoint_));
  for (const std::int32_t tokens : {kTokens, 1, 5}) {  // fewer than before: old rows stand behind
    SCOPED_TRACE(tokens);
    Batch batch(tokens, 90 + static_cast<std::uint64_t>(tokens));
    const auto none = static_cast<std::size_t>(tokens / 2);
    LeaveOut(none, &batch);

    SY_ASSERT_OK(RunStep(*session_, batch, kLayer));

    for (std::size_t i = 0; i < kHidden; ++i) EXPECT_EQ(batch.y[none * kHidden + i], 0.0F);
    if (tokens == 1) continue;
    EXPECT_LE(CalcDiff(batch.y, DefinitionOf(*opened, batch)), kPooledDiffMax);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sessions, BiasedExpertsTest,
    ::testing::Combine(::testing::Values(BindingChoice::kP2p, BindingChoice::kCollective),
                       ::testing::Values(DispatchMode::kLowLatency, DispatchMode::kNormal)),
    [](const auto& param) {
      const bool p2p = std::get<0>(param.param) == BindingChoice::kP2p;
      return absl::StrCat(p2p ? "p2p_" : "group_", DispatchModeName(std::get<1>(param.param)));
    });

}  // namespace
}  // namespace switchyard
