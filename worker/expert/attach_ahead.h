// Memory that an attachment needs and that takes long to make.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker/device/device_rings.h"
#include "worker/transport/transport.h"

namespace switchyard {

// The memory of an attachment's credits: `bytes` for each.
struct CreditMemory {
  std::size_t bytes = 0;
  std::vector<std::unique_ptr<std::byte[]>> pieces;
};

// Holds what takes too long to make for the data thread.
struct AttachAhead {
  std::shared_ptr<LinkMemory> memory;  // for LinkOptionsOf, met; null: Open makes it
  // Held as long as there is memory of the attachment (ExpertEngine::Admit).
  std::shared_ptr<void> counted;
  std::shared_ptr<CreditMemory>
      credits;  // of MakeCredits, for this request only; null: Open makes it
  // Met. Null: rows travel through the link's rings only; then, where the source has memory of a
  // device, why.
  std::shared_ptr<DeviceRings> device_rings = nullptr;
  std::string why_no_device_rings = {};
};

}  // namespace switchyard
