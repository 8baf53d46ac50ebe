// The devices of the workers of a deployment on this machine.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

// `devices` is a device of worker/registry/device_registry.h, or several with ';' between them,
// which the workers get in turn: with "cuda;cpu", the first and the third worker have a GPU. A
// part that is empty is returned as it is, so that MakeDevice refuses it.
std::string DeviceOfWorker(absl::string_view devices, std::size_t worker);

}  // namespace switchyard
