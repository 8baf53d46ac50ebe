// The store "sqlite": one SQLite file, with WAL, synchronous=FULL and one writer.
//
// `<path>.lock` is locked as long as the object lives, so that a second coordinator on the same
// file is refused at start. The lock ends with the process, however that ends.
#pragma once

#include <memory>
#include <string>

#include "coordinator/store/state_store.h"

namespace switchyard {

class SqliteDatabase;

// Not thread-safe, but may move between threads.
class SqliteStore final : public StateStore {
 public:
  // Creates the file if it does not exist. Errors: kUnavailable (STORE_WRITE) naming the path, when
  // its directory is missing, read-only or on a network file system, another coordinator uses it,
  // or it is damaged, of another version or not a database; kInvalidArgument (BAD_CONFIG) for an
  // empty path.
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(const std::string& path);
  ~SqliteStore() override;

  absl::Status Write(const StoreWrite& write) override;
  absl::StatusOr<StoredState> Load() override;

 private:
  explicit SqliteStore(std::unique_ptr<SqliteDatabase> database);
  std::unique_ptr<SqliteDatabase> database_;
};

}  // namespace switchyard
