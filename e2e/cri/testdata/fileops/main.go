// Command fileops makes one of every file operation in the directory given as its argument, and prints each result.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := os.Chdir(os.Args[1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	unix.Umask(0o22)
	f, err := unix.Open("f", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o640)
	say("create", err)
	_, err = unix.Pwrite(f, []byte("hello"), 3<<20)
	say("write", err)
	buf := make([]byte, 8)
	n, err := unix.Pread(f, buf, 3<<20-1)
	say("read", err, n, buf[:n])
	at, err := unix.Seek(f, 0, unix.SEEK_DATA)
	say("data", err, at)
	at, err = unix.Seek(f, 3<<20, unix.SEEK_HOLE)
	say("hole", err, at)
	say("allocate", unix.Fallocate(f, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	say("punch", unix.Fallocate(f, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	say("zero", unix.Fallocate(f, unix.FALLOC_FL_ZERO_RANGE, 3<<20, 2))
	say("truncate", unix.Ftruncate(f, 3<<20+4))
	say("sync", unix.Fsync(f))
	say("datasync", unix.Fdatasync(f))
	g, err := unix.Open("g", unix.O_RDWR|unix.O_CREAT, 0o600)
	say("another", err)
	from := int64(3 << 20)
	n, err = unix.CopyFileRange(f, &from, g, nil, 4, 0)
	say("copy", err, n)
	say("chmod", unix.Fchmod(f, 0o4755))
	say("chmod by name", unix.Chmod("g", 0o644))
	say("chown", unix.Lchown("g", 12, 34))
	say("times", unix.UtimesNanoAt(unix.AT_FDCWD, "g", []unix.Timespec{{Sec: 1, Nsec: 2}, {Sec: 3, Nsec: 4}}, 0))
	say("set attribute", unix.Fsetxattr(f, "user.a", []byte("value"), 0))
	n, err = unix.Getxattr("f", "user.a", buf)
	say("attribute", err, n, buf[:max(n, 0)])
	n, err = unix.Listxattr("f", make([]byte, 100))
	say("attributes", err, n)
	say("remove attribute", unix.Removexattr("f", "user.a"))
	say("capability", unix.Setxattr("f", "security.capability", make([]byte, 20), 0) != nil)
	say("link", unix.Link("f", "f2"))
	say("symlink", unix.Symlink("f", "s"))
	n, err = unix.Readlink("s", buf)
	say("readlink", err, n)
	say("mkdir", unix.Mkdir("d", 0o777))
	say("fifo", unix.Mkfifo("d/fifo", 0o600))
	say("device", unix.Mknod("d/device", unix.S_IFCHR|0o600, 0x103) != nil)
	say("rename over nothing", unix.Renameat2(unix.AT_FDCWD, "f2", unix.AT_FDCWD, "g", unix.RENAME_NOREPLACE))
	say("exchange", unix.Renameat2(unix.AT_FDCWD, "f2", unix.AT_FDCWD, "g", unix.RENAME_EXCHANGE))
	say("move", unix.Rename("f2", "d/moved"))
	say("lock", unix.Flock(f, unix.LOCK_EX|unix.LOCK_NB))
	h, err := unix.Open("d/moved", unix.O_RDWR, 0)
	say("once more", err)
	first := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	say("record lock", unix.FcntlFlock(uintptr(g), unix.F_SETLK, &first))
	say("a lock in the way", unix.FcntlFlock(uintptr(h), unix.F_OFD_SETLK, &first))
	say("close, which ends it", unix.Close(h))
	h, err = unix.Open("d/moved", unix.O_RDWR, 0)
	say("once again", err)
	say("nothing in the way", unix.FcntlFlock(uintptr(h), unix.F_OFD_SETLK, &first))
	say("close", unix.Close(h))
	say("open for more", again("f"))
	say("no file", unix.Unlink("none"))
	say("a full directory", unix.Rmdir("d"))
	say("unlink", unix.Unlink("s"))
	_, err = unix.Pread(f, buf, 3<<20)
	say("read after all", err)
	var fs unix.Statfs_t
	say("statfs", unix.Statfs(".", &fs), fs.Blocks > 0)
	mapped, err := unix.Mmap(f, 3<<20, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	say("map", err)
	if err == nil {
		copy(mapped, "MAPD")
		say("sync the map", unix.Msync(mapped, unix.MS_SYNC))
	}
	for _, name := range []string{"f", "g", "d", "d/moved", "d/fifo"} {
		var st unix.Stat_t
		say(name, unix.Lstat(name, &st), fmt.Sprintf("%o %d %d %d %d", st.Mode, st.Uid, st.Gid, st.Size, st.Nlink))
	}
	entries, err := os.ReadDir(".")
	say("list", err, len(entries))
}

func say(what string, err any, more ...any) {
	if err == nil {
		err = "ok"
	}
	fmt.Println(what+":", err, strings.TrimSuffix(fmt.Sprintln(more...), "\n"))
}

func again(name string) error {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_APPEND, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}
