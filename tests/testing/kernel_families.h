// The kernel families of this build, as parameters of a suite that runs over all of them.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "worker/device/cpu/kernel/kernels.h"

namespace switchyard::testing {

inline std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const KernelFamily* family : KernelFamilies()) names.emplace_back(family->name);
  return names;
}

}  // namespace switchyard::testing
