// A thin C++ wrapper of SQLite for sqlite_store.cc: owned handles, bound parameters, and a Status
// for every failure that names the file and a remedy. Not thread-safe, but may move between
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <sqlite3.h>

#include "core/base/unique_handle.h"

namespace switchyard {

class SqliteDatabase {
 public:
  // Opens or creates `path` and holds `<path>.lock` as long as the object lives. Reads the whole
  // file once, to find damage. Only its owner may read the file afterwards, because records hold
  // the keys of grants. Errors: kUnavailable (STORE_WRITE).
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);

  // One statement, its parameters bound in order. Use it once. An error of any call before Run is
  // returned by Run.
  class Query {
   public:
    Query(const SqliteDatabase& database, const char* sql);
    // Each binds the next parameter. The value is copied.
    Query& Text(const std::string& text);
    Query& Blob(const void* data, std::size_t bytes);
    Query& Number(std::uint64_t number);
    // Executes the statement and calls `each(query)` for each row.
    template <typename Each>
    absl::Status Run(Each each) {
      while (Step()) each(*this);
      return Outcome();
    }
    absl::Status Run() {
      return Run([](const Query&) {});
    }
    // Columns of the current row, from 0.
    // Text and blobs alike, copied.
    [[nodiscard]] std::string Bytes(int column) const;
    [[nodiscard]] std::uint64_t Number(int column) const;

   private:
    struct Traits {
      using Handle = sqlite3_stmt*;
      static Handle Invalid() { return nullptr; }
      static void Close(Handle statement) { sqlite3_finalize(statement); }
    };
    // Keeps the first error; Outcome reports it.
    Query& Bound(int rc);
    bool Step();
    [[nodiscard]] absl::Status Outcome() const;

    const SqliteDatabase& database_;
    UniqueHandle<Traits> statement_;
    int bound_ = 0;
    int rc_ = SQLITE_OK;
  };

  // Statements without parameters or rows.
  [[nodiscard]] absl::Status Exec(const std::string& sql) const;
  // Makes the error kUnavailable (STORE_WRITE) that names the file and says `what`.
  [[nodiscard]] absl::Status Failure(const std::string& what) const;

 private:
  struct FileTraits {
    using Handle = int;
    static Handle Invalid() { return -1; }
    static void Close(Handle fd) { close(fd); }
  };
  struct Traits {
    using Handle = sqlite3*;
    static Handle Invalid() { return nullptr; }
    static void Close(Handle db) { sqlite3_close_v2(db); }
  };

  explicit SqliteDatabase(std::string path) : path_(std::move(path)) {}
  // Each called once, by Open.
  absl::Status Lock();
  absl::Status MakePrivate();
  absl::Status Connect();
  // The error for an SQLite result code, with SQLite's own text and a remedy.
  [[nodiscard]] absl::Status CodeFailure(int rc) const;

  std::string path_;
  // Released after db_ is closed.
  UniqueHandle<FileTraits> lock_;
  UniqueHandle<Traits> db_;
};

}  // namespace switchyard
