"""The files of an image, and layers of them that are the same whenever the files are."""

import gzip
import hashlib
import io
import tarfile

USER = 65532


class File:
    """A regular file, a folder (`data` is None) or a link (`link` is set), and where it comes from."""

    def __init__(self, data=None, mode=0o644, link=None, owner=0, origin="switchyard"):
        self.data, self.link, self.owner, self.origin = data, link, owner, origin
        self.mode = 0o777 if link else mode


class Tree:
    """Paths from the root to files. Parents of a path are added as folders."""

    def __init__(self):
        self.files = {}

    def add(self, path, file):
        parts = path.strip("/").split("/")
        for end in range(1, len(parts)):
            self.files.setdefault("/".join(parts[:end]), File(mode=0o755))
        self.files["/".join(parts)] = file

    def regular(self):
        return {path: file for path, file in sorted(self.files.items()) if file.data is not None}


def base(tree):
    """Adds what every image has: the folders of a merged /usr, and an account without rights."""
    for name in ("bin", "sbin", "lib", "lib64"):
        tree.add("usr/" + name, File(mode=0o755))
        tree.add(name, File(link="usr/" + name))
    tree.add("tmp", File(mode=0o1777))
    tree.add("etc/passwd", File(
        b"root:x:0:0:root:/:/sbin/nologin\n"
        b"switchyard:x:%d:%d:switchyard:/var/lib/switchyard:/sbin/nologin\n" % (USER, USER)))
    tree.add("etc/group", File(b"root:x:0:\nswitchyard:x:%d:\n" % USER))
    tree.add("etc/nsswitch.conf", File(b"passwd: files\ngroup: files\nhosts: files dns\n"))
    tree.add("var/lib/switchyard", File(mode=0o750, owner=USER))


class Layer:
    """A compressed tar of a tree: `data`, its `digest`, and `diff_id`, the digest of the tar itself."""

    def __init__(self, tree, epoch):
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, file in sorted(tree.files.items()):
                tar.addfile(*_member(path, file, epoch))
        self.diff_id = digest(plain.getvalue())
        packed = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as out:
            out.write(plain.getvalue())
        self.data = packed.getvalue()
        self.digest = digest(self.data)


def _member(path, file, epoch):
    member = tarfile.TarInfo(path)
    member.mtime, member.mode = epoch, file.mode
    member.uid = member.gid = file.owner
    if file.link:
        member.type, member.linkname = tarfile.SYMTYPE, file.link
        return member, None
    if file.data is None:
        member.type = tarfile.DIRTYPE
        return member, None
    member.size = len(file.data)
    return member, io.BytesIO(file.data)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()
