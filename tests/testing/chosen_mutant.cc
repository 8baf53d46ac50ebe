#include "tests/testing/chosen_mutant.h"

#include "absl/strings/strip.h"
#include "gtest/gtest.h"

namespace switchyard::testing {
namespace {

std::string ChosenName() {
  for (const std::string& argument : ::testing::internal::GetArgvs()) {
    absl::string_view name = argument;
    if (absl::ConsumePrefix(&name, "--mutant=")) return std::string(name);
  }
  return "";
}

}  // namespace

MutantId ChosenMutant() {
  MutantId id = MutantId::kNone;
  const std::string name = ChosenName();
#ifdef SWITCHYARD_MUTANTS
  if (name.empty() || MutantFromName(name, &id)) return id;
#endif
  EXPECT_EQ(name, "") << "this build has no such mutant";
  return id;
}

std::vector<std::string> ChosenMutantFlags() {
  const std::string name = ChosenName();
  if (ChosenMutant() == MutantId::kNone) return {};
  return {"--mutant", name};
}

}  // namespace switchyard::testing
