#include "coordinator/store/sqlite_database.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/store/network_files.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// The low byte is the primary code; the rest says more than a remedy can use.
const char* RemedyFor(int rc) {
  switch (rc & 0xff) {
    case SQLITE_FULL:
      return "; free space on its disk";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return "; restore it from a copy, or move it away to start with an empty one";
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      return "; use a file that can be written";
    default:
      return "; check its disk";
  }
}

}  // namespace

// Locked before it is opened: opening may already recover the WAL of the one that runs.
absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  auto database = std::unique_ptr<SqliteDatabase>(new SqliteDatabase(path));
  SY_RETURN_IF_ERROR(database->Lock());
  SY_RETURN_IF_ERROR(database->MakePrivate());
  SY_RETURN_IF_ERROR(database->Connect());
  return database;
}

// A file of its own, because SQLite's locks last for one transaction: two coordinators would take
// turns. flock ends with the process, also after kill -9, and so leaves nothing to clean up.
absl::Status SqliteDatabase::Lock() {
  const std::string lock_path = path_ + ".lock";
  lock_.reset(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.valid()) {
    return Failure(
        absl::StrFormat("cannot create %s (%s); use a directory that exists and can be written",
                        lock_path, std::strerror(errno)));
  }
  if (const auto network = NetworkFileSystemOf(lock_.get()); !network.empty()) {
    return Failure(
        absl::StrFormat("it lies on a network file system (%s), whose locks do not hold between "
                        "machines; use a disk of this machine, or a volume that one has at a time",
                        network));
  }
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Failure(
        "another coordinator uses it; end that one first, or give this one a file of its own");
  }
  return absl::OkStatus();
}

// SQLite gives its other files the mode of this one, and would create it readable for everyone.
absl::Status SqliteDatabase::MakePrivate() {
  UniqueHandle<FileTraits> file;
  file.reset(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return absl::OkStatus();  // Connect says what is wrong, with a remedy.
  struct stat now {};
  if (fstat(file.get(), &now) != 0 || !S_ISREG(now.st_mode)) return absl::OkStatus();
  if ((now.st_mode & 077) == 0 || fchmod(file.get(), 0600) == 0) return absl::OkStatus();
  // Where the file is another user's, a shared group is the operator's decision.
  if ((now.st_mode & 007) == 0) return absl::OkStatus();
  return Failure(
      absl::StrFormat("it holds keys, every user may read it, and its mode cannot be changed (%s); "
                      "run chmod 600 on it",
                      std::strerror(errno)));
}

absl::Status SqliteDatabase::Connect() {
  sqlite3* raw = nullptr;
  const int rc =
      sqlite3_open_v2(path_.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  db_.reset(raw);  // Also after an error: the handle then holds its text and must be closed.
  if (rc != SQLITE_OK) return CodeFailure(rc);
  // So that messages distinguish one I/O error from another.
  sqlite3_extended_result_codes(raw, 1);
  SY_RETURN_IF_ERROR(Exec("PRAGMA journal_mode=WAL"));
  // WAL with FULL syncs on every commit: a COMMIT that a worker was sent must be on disk (I2).
  SY_RETURN_IF_ERROR(Exec("PRAGMA synchronous=FULL"));
  SY_RETURN_IF_ERROR(Exec("PRAGMA foreign_keys=ON"));
  // Damage is found now, with a remedy, and not by the first re-plan.
  std::string verdict;
  SY_RETURN_IF_ERROR(Query(*this, "PRAGMA quick_check(1)").Run([&verdict](const Query& row) {
    verdict = row.Bytes(0);
  }));
  if (verdict != "ok") {
    return Failure(absl::StrCat("it is damaged (", verdict, ")", RemedyFor(SQLITE_CORRUPT)));
  }
  return absl::OkStatus();
}

absl::Status SqliteDatabase::Exec(const std::string& sql) const {
  // No parameters: the texts are this program's own.
  const int rc = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return rc == SQLITE_OK ? absl::OkStatus() : CodeFailure(rc);
}

absl::Status SqliteDatabase::Failure(const std::string& what) const {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite,
                   absl::StrFormat("store %s: %s", path_, what), {{"store", path_}});
}

absl::Status SqliteDatabase::CodeFailure(int rc) const {
  return Failure(absl::StrFormat("%s (code %d)%s", sqlite3_errmsg(db_.get()), rc, RemedyFor(rc)));
}

SqliteDatabase::Query::Query(const SqliteDatabase& database, const char* sql)
    : database_(database) {
  sqlite3_stmt* raw = nullptr;
  rc_ = sqlite3_prepare_v2(database.db_.get(), sql, -1, &raw, nullptr);
  statement_.reset(raw);
}

SqliteDatabase::Query& SqliteDatabase::Query::Text(const std::string& text) {
  // TRANSIENT copies the value: the statement may outlive it.
  return Bound(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                   SQLITE_TRANSIENT, SQLITE_UTF8));
}

SqliteDatabase::Query& SqliteDatabase::Query::Blob(const void* data, std::size_t bytes) {
  return Bound(sqlite3_bind_blob64(statement_.get(), ++bound_, data, bytes, SQLITE_TRANSIENT));
}

SqliteDatabase::Query& SqliteDatabase::Query::Number(std::uint64_t number) {
  return Bound(sqlite3_bind_int64(statement_.get(), ++bound_, static_cast<sqlite3_int64>(number)));
}

SqliteDatabase::Query& SqliteDatabase::Query::Bound(int rc) {
  // The first error counts; what follows it is a consequence.
  if (rc_ == SQLITE_OK) rc_ = rc;
  return *this;
}

// After an error nothing is executed any more, so that Outcome reports the first one.
bool SqliteDatabase::Query::Step() {
  if (rc_ != SQLITE_OK && rc_ != SQLITE_ROW) return false;
  rc_ = sqlite3_step(statement_.get());
  return rc_ == SQLITE_ROW;
}

absl::Status SqliteDatabase::Query::Outcome() const {
  return rc_ == SQLITE_DONE ? absl::OkStatus() : database_.CodeFailure(rc_);
}

std::string SqliteDatabase::Query::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  if (data == nullptr) return {};  // An empty blob has no data either.
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

std::uint64_t SqliteDatabase::Query::Number(int column) const {
  return static_cast<std::uint64_t>(sqlite3_column_int64(statement_.get(), column));
}

}  // namespace switchyard
