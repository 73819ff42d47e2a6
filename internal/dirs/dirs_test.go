package dirs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDefaultHonoursTheEnvironment(t *testing.T) {
	t.Setenv("BULKHEAD_DATA", "/d")
	t.Setenv("BULKHEAD_STATE", "/s")
	r, err := Default(Run)
	if err != nil || r != (Roots{"/d", "/s"}) {
		t.Errorf("roots %v, %v", r, err)
	}
	// The engine has another working directory.
	t.Setenv("BULKHEAD_STATE", "s")
	t.Chdir("/tmp")
	if r, err = Default(Run); err != nil || r.State != "/tmp/s" {
		t.Errorf("a relative path: %v, %v", r, err)
	}
}

// TestUserState: a pod's sockets must fit below the state directory of any user.
func TestUserState(t *testing.T) {
	for _, tc := range []struct {
		runtime, tmp string
		uid          int
		want         string
	}{
		{"/run/user/1000", "/tmp", 1000, "/run/user/1000/bulkhead"},
		{"/run/user/1234567890", "/tmp", 1234567890, "/tmp/bh-1234567890"},
		{"", "/tmp", 1000, "/tmp/bulkhead-1000"},
		{"", "/home/somebody/scratch", 1000, "/tmp/bh-1000"},
		{"", "scratch", 1000, "/tmp/bh-1000"},
	} {
		got := userState(tc.runtime, tc.tmp, tc.uid, "bulkhead", "bh")
		if got != tc.want || len(got) > MaxState {
			t.Errorf("userState(%q, %q, %d) = %q, want %q", tc.runtime, tc.tmp, tc.uid, got, tc.want)
		}
	}
}

// TestInner: an engine in a user namespace has directories of its own. Its state is found without HOME, because podman
// gives that only to some of its runtime's calls.
func TestInner(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_DATA_HOME", "")
	for _, home := range []string{"/home/alice", ""} {
		t.Setenv("HOME", home)
		r, err := Roots{}.inner(0) // root has a home in /etc/passwd
		if home == "" {
			home = "/root"
		}
		if want := (Roots{Data: home + "/.local/share/bh-inner", State: "/tmp/bi-0"}); r != want || err != nil {
			t.Errorf("HOME=%s: got %v, %v, want %v", home, r, err, want)
		}
	}
	t.Setenv("HOME", "")
	if _, err := (Roots{}).inner(1 << 30); err == nil {
		t.Error("a user without a home: got nil, want an error")
	}
	if r, err := (Roots{Data: "/d", State: "/s"}).inner(1 << 30); r != (Roots{"/d", "/s"}) || err != nil {
		t.Errorf("given directories: %v, %v", r, err)
	}
	if got := userState("/run/user/1000", "", 1000, innerName, "bi"); got != "/run/user/1000/bh-inner" || len(got) > MaxState {
		t.Errorf("state: %s", got)
	}
}

func TestEnsureRefusesWhatIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := Ensure(link, 0o700); err == nil {
		t.Error("followed a symbolic link")
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := os.Mkdir(foreign, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if err := Ensure(foreign, 0o700); !errors.Is(err, ErrForeign) {
			t.Errorf("another user's directory: %v", err)
		}
	}
	r := Roots{filepath.Join(dir, "a/data"), filepath.Join(dir, "a/state")}
	for range 2 {
		if err := r.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSibling(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BULKHEAD_LIBEXEC", dir)
	if _, err := Sibling("bulkhead-test"); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("missing: %v", err)
	}
	want := filepath.Join(dir, "bulkhead-test")
	if err := os.WriteFile(want, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Sibling("bulkhead-test"); err != nil || got != want {
		t.Errorf("found %q, %v", got, err)
	}
}
