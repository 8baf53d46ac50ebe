// Which file systems a store cannot lie on: those of other machines, whose locks and shared memory
// are not those of this one. SQLite's WAL needs both (https://sqlite.org/wal.html).
#pragma once

#include "absl/strings/string_view.h"

namespace switchyard {

// The name of a network file system, of the type that statfs(2) gives: "nfs"; empty: none of them.
// FUSE and 9p are none, because virtual machines have local disks by them. Pure.
absl::string_view NetworkFileSystemName(long type);

// The same of an open file; empty also where the system does not say.
absl::string_view NetworkFileSystemOf(int descriptor);

}  // namespace switchyard
