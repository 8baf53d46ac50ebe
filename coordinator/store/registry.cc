#include "coordinator/store/registry.h"

#include <array>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

// It has no address; whatever stands behind the colon is ignored.
absl::StatusOr<std::unique_ptr<StateStore>> OpenMemory(const std::string& /*where*/) {
  return std::make_unique<MemoryStore>();
}

constexpr std::array kStores = {
    StateStoreEntry{"memory", &OpenMemory},
    StateStoreEntry{"sqlite", &SqliteStore::Open},
};

}  // namespace

std::span<const StateStoreEntry> StateStores() { return kStores; }

absl::StatusOr<std::unique_ptr<StateStore>> OpenStateStore(const std::string& address) {
  // The first colon ends the scheme; the rest may contain more, as an URL does.
  const std::size_t colon = address.find(':');
  const std::string scheme = address.substr(0, colon);
  const std::string where = colon == std::string::npos ? "" : address.substr(colon + 1);
  std::vector<std::string> known;
  for (const StateStoreEntry& entry : kStores) {
    if (scheme == entry.scheme) return entry.open(where);
    known.emplace_back(entry.scheme);
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrFormat("no state store \"%s\"; known: %s", scheme, absl::StrJoin(known, ", ")));
}

}  // namespace switchyard
