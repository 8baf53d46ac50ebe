// All state stores, one line each in registry.cc.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "coordinator/store/state_store.h"

namespace switchyard {

struct StateStoreEntry {
  const char* scheme;
  absl::StatusOr<std::unique_ptr<StateStore>> (*open)(const std::string& where);
};

std::span<const StateStoreEntry> StateStores();
// `address` is "memory" or "sqlite:/path/to/file". Errors: kInvalidArgument (BAD_CONFIG) naming the
// known schemes; else what the store's Open gives.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStateStore(const std::string& address);

}  // namespace switchyard
