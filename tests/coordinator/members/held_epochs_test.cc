#include "coordinator/members/held_epochs.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

PlanUpdate UpdateOf(std::uint64_t epoch, const std::string& content) {
  PlanUpdate update;
  update.plan.deployment = "demo";
  update.plan.epoch = Epoch{epoch};
  update.hash = Sha256(content);
  return update;
}

const PlanUpdate kServing = UpdateOf(4, "serving");
const PlanUpdate kChanging = UpdateOf(5, "changing");

struct Row {
  const char* name;
  const PlanUpdate* serving;
  const PlanUpdate* changing;
  HeldEpochs holds;
  std::string drops;  // "abort 3, retire 2"
  bool has_room;
  std::uint64_t blocks;  // the epoch; 0: none
};

HeldEpochs Holding(std::uint64_t epoch, const std::string& content, HoldState state,
                   const std::string& deployment = "demo") {
  return {{{deployment, Epoch{epoch}}, {Sha256(content), state}}};
}

HeldEpochs Both(HeldEpochs a, HeldEpochs b) {
  a.merge(b);
  return a;
}

std::string TextOf(const std::vector<EpochRule::Drop>& drops) {
  std::string text;
  for (const EpochRule::Drop& drop : drops) {
    if (!text.empty()) text += ", ";
    text += (drop.retire ? "retire " : "abort ") + std::to_string(drop.key.epoch.value);
  }
  return text;
}

std::vector<Row> Rows() {
  using enum HoldState;
  const HeldEpochs serving = Holding(4, "serving", kCommitted);
  return {
      {"nothing", &kServing, &kChanging, {}, "", true, 0},
      {"what serves", &kServing, nullptr, serving, "", true, 0},
      {"both", &kServing, &kChanging, Both(serving, Holding(5, "changing", kPrepared)), "", true,
       5},
      {"another deployment's", &kServing, nullptr, Holding(9, "x", kCommitted, "other"), "", true,
       0},
      {"asked to prepare what is over", &kServing, nullptr, Holding(3, "x", kPrepareSent),
       "abort 3", false, 3},
      {"prepared what is over", &kServing, nullptr, Holding(3, "x", kPrepared), "abort 3", false,
       3},
      {"asked to commit what is over", &kServing, nullptr, Holding(3, "x", kCommitSent), "retire 3",
       false, 3},
      {"committed what is over", &kServing, nullptr, Holding(3, "x", kCommitted), "retire 3", false,
       3},
      {"asked to retire", &kServing, nullptr, Holding(3, "x", kRetireSent), "", false, 3},
      {"another plan with the serving number", &kServing, nullptr, Holding(4, "x", kCommitted),
       "retire 4", false, 4},
      {"another plan with the number of the change", &kServing, &kChanging,
       Holding(5, "x", kPrepared), "abort 5", false, 5},
      {"committed under a coordinator that is gone", nullptr, nullptr, Holding(7, "x", kCommitted),
       "", true, 0},
      {"two of those: the newer is kept", nullptr, nullptr,
       Both(Holding(6, "x", kCommitted), Holding(7, "y", kCommitted)), "retire 6", true, 7},
      {"prepared under a coordinator that is gone", nullptr, nullptr, Holding(7, "x", kPrepared),
       "abort 7", false, 7},
      {"committed before, while the first change runs", nullptr, &kChanging,
       Both(Holding(3, "x", kCommitted), Holding(5, "changing", kCommitted)), "", true, 5},
  };
}

TEST(EpochRuleTest, LetsAWorkerHoldWhatServesAndTheChangeAndNothingElse) {
  const std::string deployment = "demo";
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.name);
    const EpochRule rule(deployment, row.serving, row.changing);
    EXPECT_EQ(TextOf(rule.DropsOf(row.holds)), row.drops);
    EXPECT_EQ(rule.HasRoom(row.holds), row.has_room);
    EXPECT_EQ(rule.BlockingEpoch(row.holds).value_or(Epoch{}).value, row.blocks);
  }
}

}  // namespace
}  // namespace switchyard
