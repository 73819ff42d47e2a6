package shares

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

var remapped = userns.Mappings{UIDs: "0 100000 65536", GIDs: "0 200000 65536"}

// TestAgree checks that all containers of a VM have the same mappings.
func TestAgree(t *testing.T) {
	share := func(path string, users userns.Mappings) []store.Share {
		return []store.Share{{Path: path, Staging: store.Staging{Holder: procid.ID{PID: 7}, FD: 4, Users: users}}}
	}
	for name, c := range map[string]struct{ first, second userns.Mappings }{
		"none, then some": {userns.Mappings{}, remapped}, "some, then none": {remapped, userns.Mappings{}},
		"others": {remapped, userns.Mappings{UIDs: remapped.UIDs, GIDs: remapped.UIDs}},
	} {
		s := New(nil, Host{Logger: slog.New(slog.DiscardHandler)})
		for _, path := range []string{"/0", "/1"} {
			if err := s.agree(share(path, c.first)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		err := s.agree(share("/2", c.second))
		if !errors.Is(err, ErrUsers) || grpccode.Of(err) != codes.FailedPrecondition || len(s.all) != 2 || s.users != c.first {
			t.Errorf("%s: got %v, %d shares for %+v", name, err, len(s.all), s.users)
		}
	}
}

// TestCheck checks that a running server with other mappings gets no directories.
func TestCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's servers have several mappings")
	}
	self, err := procid.Self()
	if err != nil {
		t.Fatal(err)
	}
	s := New(nil, Host{})
	if err := s.check(self); err != nil {
		t.Error(err)
	}
	s.users = remapped
	if err := s.check(self); !errors.Is(err, ErrUsers) {
		t.Errorf("a server in the host's user namespace: got %v", err)
	}
}

// TestAdmit checks that the namespace's root group may use the pod's socket for surrogates, and no other file.
func TestAdmit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root changes groups")
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want error
	}{
		"socket":    {func(path string) error { return listenAt(t, path) }, nil},
		"file":      {func(path string) error { return os.WriteFile(path, nil, 0o600) }, hostio.ErrForeign},
		"link":      {func(path string) error { return os.Symlink("/dev/null", path) }, hostio.ErrForeign},
		"hard link": {func(path string) error { return errors.Join(listenAt(t, path), os.Link(path, path+"2")) }, hostio.ErrForeign},
		"absent":    {func(string) error { return nil }, os.ErrNotExist},
	} {
		dir := realDir(t)
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			t.Fatal(err)
		}
		socket := filepath.Join(dir, hostio.Name)
		if err := c.make(socket); err != nil {
			t.Fatal(err)
		}
		err := admit(dir, remapped)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		group, mode := 200000, uint32(unix.S_ISGID|0o710)
		if c.want != nil {
			group, mode = 0, 0o700
		}
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || int(st.Gid) != group || st.Mode&0o7777 != mode {
			t.Errorf("%s: the directory has group %d, mode %o, %v; want %d, %o", name, st.Gid, st.Mode, err, group, mode)
		}
		if err := unix.Lstat(socket, &st); err == nil && int(st.Gid) != group {
			t.Errorf("%s: the file has group %d, want %d", name, st.Gid, group)
		}
	}
	if err := admit("/absent", userns.Mappings{}); err != nil {
		t.Errorf("without a user namespace: %v", err)
	}
}

func listenAt(t *testing.T, path string) error {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return err
}
