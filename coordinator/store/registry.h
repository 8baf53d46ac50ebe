// All state stores. A new one is a file and a line in registry.cc; the conformance suite in
// tests/conformance/state_store_test.cc runs over every entry.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "coordinator/store/state_store.h"

namespace switchyard {

// A row of the table: the scheme of its addresses, and how to open it.
struct StateStoreEntry {
  const char* scheme;
  absl::StatusOr<std::unique_ptr<StateStore>> (*open)(const std::string& where);
};

std::span<const StateStoreEntry> StateStores();
// `address` is "memory" or "sqlite:/path/to/file". Errors: kInvalidArgument (BAD_CONFIG) listing
// the known schemes; else those of the store's Open.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStateStore(const std::string& address);

}  // namespace switchyard
