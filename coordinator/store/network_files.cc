#include "coordinator/store/network_files.h"

#include <cstdint>
#include <sys/vfs.h>

namespace switchyard {
namespace {

// Source: linux/magic.h, and the file systems' own sources for those that are not in it.
struct Type {
  std::uint32_t magic;
  absl::string_view name;
};
constexpr Type kTypes[] = {{0x6969, "nfs"},        {0xff534d42, "cifs"}, {0xfe534d42, "smb"},
                           {0x517b, "smb"},        {0x00c36400, "ceph"}, {0x0bd00bd0, "lustre"},
                           {0x47504653, "gpfs"},   {0x5346414f, "afs"},  {0x6b414653, "afs"},
                           {0x19830326, "beegfs"}, {0x01161970, "gfs2"}, {0x7461636f, "ocfs2"}};

}  // namespace

absl::string_view NetworkFileSystemName(long type) {
  for (const Type& each : kTypes) {
    // Some of them have the sign bit, which a wider type may have kept or not.
    if (each.magic == static_cast<std::uint32_t>(type)) return each.name;
  }
  return "";
}

absl::string_view NetworkFileSystemOf(int descriptor) {
  struct statfs facts {};
  return fstatfs(descriptor, &facts) == 0 ? NetworkFileSystemName(facts.f_type) : "";
}

}  // namespace switchyard
