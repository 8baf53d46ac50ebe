// The kernel families of the cpu device, and how one is chosen.
//
// A family is a source file, a line here and a line in kernels.cc.
#pragma once

#include <span>
#include <string>

#include "absl/strings/string_view.h"

#include "worker/device/cpu/kernel/kernel_family.h"

namespace switchyard {

extern const KernelFamily kScalarFamily;
extern const KernelFamily kPortableFamily;
extern const KernelFamily kAvx2Family;    // x86-64 builds only
extern const KernelFamily kAvx512Family;  // x86-64 builds only
extern const KernelFamily kAmxFamily;     // x86-64 builds only

// Every family of this build, best first; scalar, which is for tests, last.
std::span<const KernelFamily* const> KernelFamilies();
// Names of those that `cpu` can run, comma-separated, best first.
std::string UsableFamilyNames(const CpuFeatures& cpu);
// nullptr when this build has no such family.
const KernelFamily* FindKernelFamily(absl::string_view name);

}  // namespace switchyard
