#include "worker/device/cpu/kernel/kernels.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace switchyard {
namespace {

constexpr auto kFamilies = std::to_array<const KernelFamily*>({
#if defined(SY_WITH_X86_KERNELS)
  &kAmxFamily, &kAvx512Family, &kAvx2Family,
#endif
      &kPortableFamily, &kScalarFamily,
});

}  // namespace

std::span<const KernelFamily* const> KernelFamilies() { return kFamilies; }

std::string UsableFamilyNames(const CpuFeatures& cpu) {
  std::string names;
  for (const KernelFamily* family : kFamilies) {
    if (family->usable(cpu)) absl::StrAppend(&names, names.empty() ? "" : ", ", family->name);
  }
  return names;
}

const KernelFamily* FindKernelFamily(absl::string_view name) {
  for (const KernelFamily* family : kFamilies) {
    if (name == family->name) return family;
  }
  return nullptr;
}

}  // namespace switchyard
