// The abilities that a worker proved when it joined. Reported, never inferred from its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device_profile.h"
#include "core/format/dtype.h"
#include "core/gdn_facts.h"
#include "core/quant_scheme.h"

namespace switchyard {

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

  [[nodiscard]] bool Takes(DispatchDtype dtype) const;
  [[nodiscard]] bool Takes(QuantScheme scheme) const;
  [[nodiscard]] std::string DebugString() const;

  friend bool operator==(const CapabilitySet&, const CapabilitySet&) = default;
};

}  // namespace switchyard
