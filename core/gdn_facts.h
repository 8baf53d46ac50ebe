// The kernels for gated delta networks (GDN), the linear attention of Qwen3-Next and Qwen3.5, that
// a kind of device can run. Engines run them, not this service; they read these facts in a worker's
// capabilities (`syctl describe worker`, ListWorkers) instead of knowing devices by name.
//
// Sources: SGLang PR 24906 (FlashInfer's GDN verifies drafts only on SM90) and PR 23815 (Triton's
// two-dimensional grid crashed on NPUs beyond 65536 tokens). Pure; thread-safe.
#pragma once

#include <cstdint>

#include "core/device_profile.h"

namespace switchyard {

// The kernel that verifies the drafts of speculative decoding.
enum class GdnVerifyKernel : std::uint8_t { kTriton = 0, kFlashinfer = 1 };

struct GdnFacts {
  GdnVerifyKernel verify = GdnVerifyKernel::kTriton;  // of speculative drafts
  bool grid_2d = true;  // kernels with a two-dimensional grid may be used; else the native path
  friend bool operator==(const GdnFacts&, const GdnFacts&) = default;
};

// A profile that does not name its generation of GPU gets the features that all of them have.
GdnFacts GdnFactsOf(const DeviceProfile& profile);

}  // namespace switchyard
