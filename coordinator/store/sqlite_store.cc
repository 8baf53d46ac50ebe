#include "coordinator/store/sqlite_store.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "coordinator/store/sqlite_database.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

using Query = SqliteDatabase::Query;

// The layout of the tables. Records and plans carry formats of their own. Format 1 has neither
// `deleted` nor `workers`, format 2 neither `revisions` nor `checkpoints`, format 3 no `applies`: a
// file of these gets them when it is opened. The number then keeps an older version away, which
// would use numbers of deleted deployments again, write records without their revisions, and leave
// applies that others have replaced.
constexpr std::uint64_t kFormat = 4;

// The numbers that conditions compare are columns of their own; records and plans are opaque, so
// that their formats can change without a migration. WITHOUT ROWID: rows are found by name only.
constexpr char kSchema[] = R"sql(
CREATE TABLE IF NOT EXISTS deployments (
  name TEXT PRIMARY KEY,
  record BLOB NOT NULL,
  high_water INTEGER NOT NULL DEFAULT 0,
  serving INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plans (
  deployment TEXT NOT NULL REFERENCES deployments(name),
  epoch INTEGER NOT NULL,
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  plan BLOB NOT NULL,
  PRIMARY KEY (deployment, epoch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoints (
  hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
  checkpoint BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revisions (
  deployment TEXT NOT NULL REFERENCES deployments(name),
  number INTEGER NOT NULL,
  served INTEGER NOT NULL DEFAULT 0,
  revision BLOB NOT NULL,
  checkpoint BLOB NOT NULL REFERENCES checkpoints(hash),
  PRIMARY KEY (deployment, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deleted (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  high_water INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS workers (
  id TEXT PRIMARY KEY,
  duty INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applies (
  deployment TEXT PRIMARY KEY,
  record BLOB NOT NULL
) WITHOUT ROWID;
)sql";

// 0 is a new file: SQLite's default for user_version.
absl::Status CheckFormat(const SqliteDatabase& db) {
  std::uint64_t format = 0;
  SY_RETURN_IF_ERROR(Query(db, "PRAGMA user_version").Run([&format](const Query& row) {
    format = row.Number(0);
  }));
  if (format <= kFormat) return absl::OkStatus();
  return db.Failure(
      absl::StrFormat("its format is %d, but this version reads %d; use the version that wrote it",
                      format, kFormat));
}

// The numbers that the conditions compare.
struct Numbers {
  bool found = false;
  std::uint64_t high_water = 0;
  std::uint64_t serving = 0;
};

absl::StatusOr<Numbers> NumbersOf(const SqliteDatabase& db, const std::string& deployment) {
  Numbers numbers;
  SY_RETURN_IF_ERROR(Query(db, "SELECT high_water, serving FROM deployments WHERE name = ?")
                         .Text(deployment)
                         .Run([&numbers](const Query& row) {
                           numbers = {true, row.Number(0), row.Number(1)};
                         }));
  if (!numbers.found) return StoreConflict(deployment, "the deployment does not exist");
  return numbers;
}

// Also above `epoch`: plans ascend, and a later one would make this one a step back.
absl::StatusOr<std::uint64_t> CountPlansFrom(const SqliteDatabase& db, const std::string& name,
                                             Epoch epoch) {
  std::uint64_t count = 0;
  SY_RETURN_IF_ERROR(Query(db, "SELECT count(*) FROM plans WHERE deployment = ? AND epoch >= ?")
                         .Text(name)
                         .Number(epoch.value)
                         .Run([&count](const Query& row) { count = row.Number(0); }));
  return count;
}

absl::Status DropUnusedCheckpoints(const SqliteDatabase& db) {
  return db.Exec("DELETE FROM checkpoints WHERE hash NOT IN (SELECT checkpoint FROM revisions)");
}

absl::Status Add(const SqliteDatabase& db, const std::string& deployment,
                 const NewRevision& revision) {
  const Sha256Digest hash = Sha256(revision.checkpoint);
  SY_RETURN_IF_ERROR(Query(db, "INSERT OR IGNORE INTO checkpoints (hash, checkpoint) VALUES (?, ?)")
                         .Blob(hash.bytes.data(), hash.bytes.size())
                         .Blob(revision.checkpoint.data(), revision.checkpoint.size())
                         .Run());
  return Query(db,
               "INSERT OR REPLACE INTO revisions (deployment, number, revision, checkpoint) "
               "VALUES (?, ?, ?, ?)")
      .Text(deployment)
      .Number(revision.number)
      .Blob(revision.revision.data(), revision.revision.size())
      .Blob(hash.bytes.data(), hash.bytes.size())
      .Run();
}

absl::Status EndApply(const SqliteDatabase& db, const std::string& deployment) {
  return Query(db, "DELETE FROM applies WHERE deployment = ?").Text(deployment).Run();
}

absl::Status Apply(const SqliteDatabase& db, const PutDeployment& put) {
  SY_RETURN_IF_ERROR(EndApply(db, put.deployment));
  SY_RETURN_IF_ERROR(Query(db,
                           "INSERT INTO deployments (name, record, high_water) "
                           "VALUES (?, ?, coalesce((SELECT high_water FROM deleted), 0)) "
                           "ON CONFLICT (name) DO UPDATE SET record = excluded.record")
                         .Text(put.deployment)
                         .Blob(put.record.data(), put.record.size())
                         .Run());
  for (const std::uint64_t number : put.forget) {
    SY_RETURN_IF_ERROR(Query(db, "DELETE FROM revisions WHERE deployment = ? AND number = ?")
                           .Text(put.deployment)
                           .Number(number)
                           .Run());
  }
  if (put.revision) SY_RETURN_IF_ERROR(Add(db, put.deployment, *put.revision));
  return DropUnusedCheckpoints(db);
}

absl::Status Apply(const SqliteDatabase& db, const ReserveEpoch& reserve) {
  SY_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(db, reserve.deployment));
  if (reserve.epoch.value <= numbers.high_water) {
    return StoreConflict(reserve.deployment,
                         absl::StrFormat("epoch %d is not above %d, the last number given out",
                                         reserve.epoch.value, numbers.high_water));
  }
  return Query(db, "UPDATE deployments SET high_water = ? WHERE name = ?")
      .Number(reserve.epoch.value)
      .Text(reserve.deployment)
      .Run();
}

absl::Status Apply(const SqliteDatabase& db, const CommitPlan& commit) {
  SY_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(db, commit.deployment));
  SY_ASSIGN_OR_RETURN(const std::uint64_t later,
                      CountPlansFrom(db, commit.deployment, commit.epoch));
  if (commit.epoch.value != numbers.high_water || later > 0) {
    return StoreConflict(
        commit.deployment,
        absl::StrFormat("epoch %d cannot be committed: the last number given out is %d, and it %s",
                        commit.epoch.value, numbers.high_water,
                        later > 0 ? "has a plan already" : "has no plan"));
  }
  return Query(db, "INSERT INTO plans (deployment, epoch, hash, plan) VALUES (?, ?, ?, ?)")
      .Text(commit.deployment)
      .Number(commit.epoch.value)
      .Blob(commit.hash.bytes.data(), commit.hash.bytes.size())
      .Blob(commit.plan.data(), commit.plan.size())
      .Run();
}

absl::Status Apply(const SqliteDatabase& db, const MarkServing& mark) {
  SY_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(db, mark.deployment));
  std::uint64_t there = 0;
  SY_RETURN_IF_ERROR(Query(db, "SELECT count(*) FROM plans WHERE deployment = ? AND epoch = ?")
                         .Text(mark.deployment)
                         .Number(mark.epoch.value)
                         .Run([&there](const Query& row) { there = row.Number(0); }));
  if (there == 0) {
    return StoreConflict(mark.deployment,
                         absl::StrFormat("epoch %d has no plan", mark.epoch.value));
  }
  SY_RETURN_IF_ERROR(
      Query(db, "UPDATE revisions SET served = ? WHERE deployment = ? AND number = ?")
          .Number(mark.epoch.value)
          .Text(mark.deployment)
          .Number(mark.revision)
          .Run());
  // A repeated mark must not drop the plan that served before: `serving` is this epoch already.
  if (numbers.serving == mark.epoch.value) return absl::OkStatus();
  SY_RETURN_IF_ERROR(
      Query(db, "DELETE FROM plans WHERE deployment = ? AND epoch < ? AND epoch <> ?")
          .Text(mark.deployment)
          .Number(mark.epoch.value)
          .Number(numbers.serving)
          .Run());
  return Query(db, "UPDATE deployments SET serving = ? WHERE name = ?")
      .Number(mark.epoch.value)
      .Text(mark.deployment)
      .Run();
}

absl::Status Apply(const SqliteDatabase& db, const DeleteDeployment& gone) {
  SY_RETURN_IF_ERROR(EndApply(db, gone.deployment));
  SY_RETURN_IF_ERROR(
      Query(db,
            "INSERT INTO deleted (only, high_water) "
            "SELECT 1, high_water FROM deployments WHERE name = ? "
            "ON CONFLICT (only) DO UPDATE SET high_water = max(high_water, excluded.high_water)")
          .Text(gone.deployment)
          .Run());
  SY_RETURN_IF_ERROR(
      Query(db, "DELETE FROM plans WHERE deployment = ?").Text(gone.deployment).Run());
  SY_RETURN_IF_ERROR(
      Query(db, "DELETE FROM revisions WHERE deployment = ?").Text(gone.deployment).Run());
  SY_RETURN_IF_ERROR(DropUnusedCheckpoints(db));
  return Query(db, "DELETE FROM deployments WHERE name = ?").Text(gone.deployment).Run();
}

absl::Status Apply(const SqliteDatabase& db, const PutWorkerDuty& put) {
  if (put.duty == WorkerDuty::kServe) {
    return Query(db, "DELETE FROM workers WHERE id = ?").Text(put.worker).Run();
  }
  return Query(db,
               "INSERT INTO workers (id, duty) VALUES (?, ?) "
               "ON CONFLICT (id) DO UPDATE SET duty = excluded.duty")
      .Text(put.worker)
      .Number(static_cast<std::uint64_t>(put.duty))
      .Run();
}

absl::Status Apply(const SqliteDatabase& db, const PutApply& put) {
  if (put.record.empty()) return EndApply(db, put.deployment);
  return Query(db, "INSERT OR REPLACE INTO applies (deployment, record) VALUES (?, ?)")
      .Text(put.deployment)
      .Blob(put.record.data(), put.record.size())
      .Run();
}

// False for bytes of another length. The CHECK holds for what this program wrote; a file can be
// edited.
bool ReadDigest(const std::string& bytes, Sha256Digest* digest) {
  if (bytes.size() != digest->bytes.size()) return false;
  std::copy(bytes.begin(), bytes.end(), digest->bytes.begin());
  return true;
}

// Ascending by epoch, as StoredDeployment promises; recovery distinguishes the plans by their
// numbers.
absl::Status LoadPlans(const SqliteDatabase& db, StoredDeployment& stored) {
  bool good = true;
  SY_RETURN_IF_ERROR(
      Query(db, "SELECT epoch, hash, plan FROM plans WHERE deployment = ? ORDER BY epoch")
          .Text(stored.deployment)
          .Run([&](const Query& row) {
            StoredPlan plan{Epoch{row.Number(0)}, {}, row.Bytes(2)};
            good = ReadDigest(row.Bytes(1), &plan.hash) && good;
            stored.plans.push_back(std::move(plan));
          }));
  if (good) return absl::OkStatus();
  return db.Failure("it is damaged (the hash of a plan); restore it from a copy");
}

absl::Status LoadRevisions(const SqliteDatabase& db, StoredDeployment& stored) {
  bool good = true;
  SY_RETURN_IF_ERROR(
      Query(db,
            "SELECT number, served, revision, checkpoint FROM revisions "
            "WHERE deployment = ? ORDER BY number")
          .Text(stored.deployment)
          .Run([&](const Query& row) {
            StoredRevision one{row.Number(0), Epoch{row.Number(1)}, row.Bytes(2), {}};
            good = ReadDigest(row.Bytes(3), &one.checkpoint) && good;
            stored.revisions.push_back(std::move(one));
          }));
  if (good) return absl::OkStatus();
  return db.Failure("it is damaged (the hash of a checkpoint); restore it from a copy");
}

absl::Status LoadCheckpoints(const SqliteDatabase& db, StoredState& state) {
  return Query(db, "SELECT hash, checkpoint FROM checkpoints").Run([&](const Query& row) {
    // One that no revision refers to is not read.
    Sha256Digest hash;
    if (ReadDigest(row.Bytes(0), &hash)) state.checkpoints[hash] = row.Bytes(1);
  });
}

absl::Status LoadDuties(const SqliteDatabase& db, WorkerDuties& duties) {
  bool known = true;
  SY_RETURN_IF_ERROR(Query(db, "SELECT id, duty FROM workers").Run([&](const Query& row) {
    known = known && row.Number(1) <= static_cast<std::uint64_t>(kLastWorkerDuty);
    if (known) duties[row.Bytes(0)] = static_cast<WorkerDuty>(row.Number(1));
  }));
  if (known) return absl::OkStatus();
  return db.Failure("it is damaged (the duty of a worker); restore it from a copy");
}

}  // namespace

SqliteStore::SqliteStore(std::unique_ptr<SqliteDatabase> database)
    : database_(std::move(database)) {}
SqliteStore::~SqliteStore() = default;

absl::StatusOr<std::unique_ptr<StateStore>> SqliteStore::Open(const std::string& path) {
  if (path.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     "the sqlite store needs a file: sqlite:/path/to/file");
  }
  SY_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database, SqliteDatabase::Open(path));
  // Before the schema: CREATE must not touch the file of another version.
  SY_RETURN_IF_ERROR(CheckFormat(*database));
  SY_RETURN_IF_ERROR(database->Exec(kSchema));
  SY_RETURN_IF_ERROR(database->Exec(absl::StrFormat("PRAGMA user_version = %d", kFormat)));
  return std::unique_ptr<StateStore>(new SqliteStore(std::move(database)));
}

absl::Status SqliteStore::Write(const StoreWrite& write) {
  // IMMEDIATE takes the write lock before the condition is read, so that nothing changes in
  // between.
  SY_RETURN_IF_ERROR(database_->Exec("BEGIN IMMEDIATE"));
  absl::Status status = std::visit([this](const auto& w) { return Apply(*database_, w); }, write);
  if (status.ok()) status = database_->Exec("COMMIT");
  if (status.ok()) return status;
  // After some errors SQLite has rolled back already, and this has nothing to do.
  database_->Exec("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<StoredState> SqliteStore::Load() {
  StoredState state;
  std::vector<StoredDeployment>& all = state.deployments;
  SY_RETURN_IF_ERROR(
      Query(*database_, "SELECT name, record, high_water, serving FROM deployments ORDER BY name")
          .Run([&all](const Query& row) {
            all.push_back(
                {row.Bytes(0), row.Bytes(1), Epoch{row.Number(2)}, Epoch{row.Number(3)}, {}});
          }));
  // A second query and not a join, which would repeat the record, with its manifest, for each plan.
  for (StoredDeployment& stored : all) {
    SY_RETURN_IF_ERROR(LoadPlans(*database_, stored));
    SY_RETURN_IF_ERROR(LoadRevisions(*database_, stored));
  }
  SY_RETURN_IF_ERROR(LoadCheckpoints(*database_, state));
  SY_RETURN_IF_ERROR(Query(*database_, "SELECT high_water FROM deleted").Run([&](const Query& row) {
    state.deleted_high_water = Epoch{row.Number(0)};
  }));
  SY_RETURN_IF_ERROR(LoadDuties(*database_, state.duties));
  SY_RETURN_IF_ERROR(
      Query(*database_, "SELECT deployment, record FROM applies").Run([&](const Query& row) {
        state.applies[row.Bytes(0)] = row.Bytes(1);
      }));
  return state;
}

}  // namespace switchyard
