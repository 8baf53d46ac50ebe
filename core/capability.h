// The abilities that a worker proved when it joined. Reported, never inferred from its name.
//
// A worker runs its kernels and codecs on golden vectors before it registers; whatever fails is
// missing here, and plans do without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device_profile.h"
#include "core/format/dtype.h"
#include "core/gdn_facts.h"
#include "core/quant_scheme.h"

namespace switchyard {

// Plain data. A worker sends it with Register; a plan is decided by it and by the device's profile.
struct CapabilitySet {
  DeviceKind device = DeviceKind::kCpu;
  std::string device_profile;  // row of core/device_profile, e.g. "cpu"
  std::string kernel_family;   // results are bit-equal within one family, e.g. "amx_bf16"
  std::vector<DispatchDtype> wire_dtypes;  // codecs whose self-test passed
  std::vector<QuantScheme> schemes;        // weight schemes whose self-test passed
  std::vector<std::string> transports;     // "shm", "tcp", "inproc"
  std::int32_t max_top_k = 0;
  std::int64_t weight_bytes_max = 0;  // memory for expert weights; 0: unknown
  GdnFacts gdn;                       // for engines on the same kind of device
  // The transport's library with its version, "UCX 1.13.1"; empty where it has none.
  std::string transport_library = {};

  // True when the codec's, or the scheme's, self-test has passed. Linear in a handful of entries.
  [[nodiscard]] bool Takes(DispatchDtype dtype) const;
  [[nodiscard]] bool Takes(QuantScheme scheme) const;
  // One line, for logs and test failures; no format that anything parses.
  [[nodiscard]] std::string DebugString() const;

  friend bool operator==(const CapabilitySet&, const CapabilitySet&) = default;
};

}  // namespace switchyard
