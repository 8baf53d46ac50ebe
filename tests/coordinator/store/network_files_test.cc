#include "coordinator/store/network_files.h"

#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

#include "gtest/gtest.h"
#include <linux/magic.h>

#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

TEST(NetworkFilesTest, KnowsThoseOfOtherMachines) {
  EXPECT_EQ(NetworkFileSystemName(NFS_SUPER_MAGIC), "nfs");
  EXPECT_EQ(NetworkFileSystemName(SMB_SUPER_MAGIC), "smb");
  EXPECT_EQ(NetworkFileSystemName(CIFS_SUPER_MAGIC), "cifs");
  EXPECT_EQ(NetworkFileSystemName(SMB2_SUPER_MAGIC), "smb");
  EXPECT_EQ(NetworkFileSystemName(CEPH_SUPER_MAGIC), "ceph");
  EXPECT_EQ(NetworkFileSystemName(AFS_SUPER_MAGIC), "afs");
  EXPECT_EQ(NetworkFileSystemName(AFS_FS_MAGIC), "afs");
  EXPECT_EQ(NetworkFileSystemName(OCFS2_SUPER_MAGIC), "ocfs2");
  // As a signed number of 32 bits.
  EXPECT_EQ(NetworkFileSystemName(static_cast<int>(CIFS_SUPER_MAGIC)), "cifs");
}

TEST(NetworkFilesTest, TakesThoseOfThisMachine) {
  for (const long type : std::initializer_list<long>{
           EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC,
           FUSE_SUPER_MAGIC, V9FS_MAGIC}) {
    EXPECT_EQ(NetworkFileSystemName(type), "") << type;
  }
  const testing::TempDir dir;
  const int file = open(dir.Join("file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  EXPECT_EQ(NetworkFileSystemOf(file), "");
  close(file);
  EXPECT_EQ(NetworkFileSystemOf(-1), "");
}

}  // namespace
}  // namespace switchyard
