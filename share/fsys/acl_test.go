package fsys_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// acl returns an access control list of the owner, one user, the group, the mask and others.
func acl(user uint32, owner, other, group, mask, rest uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, owner, ^uint32(0)}, {2, other, user}, {4, group, ^uint32(0)}, {16, mask, ^uint32(0)}, {32, rest, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// TestACL: the guest's kernel enforces access control lists that are passed on. The host's kernel applies a directory's
// list to new files in any case, in place of the umask.
func TestACL(t *testing.T) {
	old := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(old) })
	for name, passed := range map[string]bool{"passed": true, "kept": false} {
		mounted, host := share(t, fsys.Options{ACL: passed}, fsys.Root{})
		for _, dir := range []string{"inherits", "plain"} {
			if err := os.Mkdir(filepath.Join(host, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(host, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(host, 0o755); err != nil {
			t.Fatal(err)
		}
		err := unix.Setxattr(filepath.Join(host, "inherits"), "system.posix_acl_default", acl(1000, 7, 7, 5, 7, 0), 0)
		if err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string]uint32{"inherits": 0o660, "plain": 0o600} {
			writeFile(t, filepath.Join(mounted, dir, "file"), "data")
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(host, dir, "file"), &st); err != nil || st.Mode&0o777 != want&^0o020 && st.Mode&0o777 != want {
				t.Errorf("%s: a file in %s is %o, %v", name, dir, st.Mode, err)
			}
		}
		list := make([]byte, 100)
		_, err = unix.Lgetxattr(filepath.Join(mounted, "inherits/file"), "system.posix_acl_access", list)
		if (err == nil) != passed {
			t.Errorf("%s: the list: %v", name, err)
		}
		secret := filepath.Join(host, "plain/file")
		if err := unix.Setxattr(secret, "system.posix_acl_access", acl(1000, 6, 4, 0, 4, 0), 0); err != nil {
			t.Fatal(err)
		}
		if !passed {
			continue
		}
		for uid, want := range map[int]string{1000: "", 1001: "EACCES"} {
			got := as(uid, 4000, func() string {
				fd, err := unix.Open(filepath.Join(mounted, "plain/file"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
				_ = unix.Close(fd)
				return outcome(err)
			})
			if got != want {
				t.Errorf("user %d: %q", uid, got)
			}
		}
	}
}
