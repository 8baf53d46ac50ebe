#include "core/mutant.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

#ifdef SWITCHYARD_MUTANTS

TEST(MutantTest, NamesRoundTripAndAreUnique) {
  std::set<std::string> names;
  for (const MutantName& row : MutantNames()) {
    MutantId back = MutantId::kNone;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    ASSERT_TRUE(MutantFromName(row.name, &back)) << row.name;
    EXPECT_EQ(back, row.id);
  }
  MutantId untouched = MutantId::kNone;
  EXPECT_FALSE(MutantFromName("no_such_mutant", &untouched));
}

TEST(MutantTest, OnlyTheChosenOneIsAwake) {
  EXPECT_TRUE(SY_MUTANT(MutantId::kRetireEarly, kRetireEarly));
  EXPECT_FALSE(SY_MUTANT(MutantId::kRetireEarly, kAnnounceEarly));
  EXPECT_FALSE(SY_MUTANT(MutantId::kNone, kRetireEarly));
}

#else

// Holds at compile time, so that no branch for a mutant can be in a build that ships.
TEST(MutantTest, ShippedBuildsHoldNone) {
  static_assert(!SY_MUTANT(MutantId::kNone, kRetireEarly));
  static_assert(!SY_MUTANT(MutantId::kNone, kNoMutantHasThisName));
  EXPECT_EQ(static_cast<int>(MutantId::kNone), 0);
}

#endif

}  // namespace
}  // namespace switchyard
