package dirs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// sessions are roots of one user in two sessions, as started by ssh and cron.
func sessions(t *testing.T) (ssh, cron Roots) {
	t.Helper()
	dir := t.TempDir()
	ssh = Roots{Data: filepath.Join(dir, "data"), State: filepath.Join(dir, "ssh")}
	cron = Roots{Data: ssh.Data, State: filepath.Join(dir, "cron")}
	for _, r := range []Roots{ssh, cron} {
		if err := r.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	return ssh, cron
}

func claim(t *testing.T, r Roots) (*flock.Lock, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	return r.Claim(ctx, Run)
}

func release(t *testing.T, lock *flock.Lock) {
	t.Helper()
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// TestOneState: while an engine uses the data, or has left pods, no other state directory is used. Another session uses
// the pods' directory, or gets an error with its path.
func TestOneState(t *testing.T) {
	t.Parallel()
	ssh, cron := sessions(t)
	if got := cron.withLastState(Run); got != cron {
		t.Errorf("before any engine: %v", got)
	}
	lock, err := claim(t, ssh)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, ssh); !errors.Is(err, flock.ErrLocked) || errors.Is(err, ErrElsewhere) {
		t.Errorf("a second engine of the same session: %v", err)
	}
	refused := func(when string) {
		t.Helper()
		if _, err := claim(t, cron); !errors.Is(err, ErrElsewhere) || !strings.Contains(err.Error(), "BULKHEAD_STATE="+ssh.State+",") {
			t.Errorf("%s: claimed elsewhere: %v", when, err)
		}
		if got := cron.withLastState(Run); got != ssh {
			t.Errorf("%s: another session goes to %v", when, got)
		}
	}
	refused("while an engine runs")
	if got := cron.withLastState(CRI); got != cron {
		t.Errorf("another instance goes to %v", got)
	}
	release(t, lock)

	const id = "0123"
	pod := filepath.Join(ssh.Instance(Run), id)
	for _, dir := range []string{pod, filepath.Join(ssh.Sandboxes(), id)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	refused("with a pod of an engine that was killed")

	if err := os.Remove(pod); err != nil {
		t.Fatal(err)
	}
	if got := cron.withLastState(Run); got != cron {
		t.Errorf("when all has ended, another session goes to %v", got)
	}
	if lock, err = claim(t, cron); err != nil {
		t.Fatal(err)
	}
	release(t, lock)
}

// TestAnotherPlace: a new directory at the same path has no pods in it. In another mount namespace /tmp is another
// directory, too.
func TestAnotherPlace(t *testing.T) {
	t.Parallel()
	ssh, cron := sessions(t)
	lock, err := claim(t, ssh)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ssh.State, ssh.State+".old"); err != nil { // so that its inode number is not reused
		t.Fatal(err)
	}
	if err := ssh.Ensure(); err != nil {
		t.Fatal(err)
	}
	if got := cron.withLastState(Run); got != cron {
		t.Errorf("goes to a directory without the engine's socket: %v", got)
	}
	if _, err := claim(t, ssh); !errors.Is(err, ErrElsewhere) {
		t.Errorf("a second engine at the same path: %v", err)
	}
	release(t, lock)
}

// TestDamagedPlace: a record that cannot be read is not forgotten.
func TestDamagedPlace(t *testing.T) {
	t.Parallel()
	ssh, _ := sessions(t)
	if err := os.WriteFile(ssh.placePath(Run), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, ssh); err == nil {
		t.Error("claimed")
	}
	if got := ssh.withLastState(Run); got != ssh {
		t.Errorf("goes to %v", got)
	}
}

// TestOwnRuntime: another user's runtime directory, as su leaves it, and a relative path are not used.
func TestOwnRuntime(t *testing.T) {
	own, foreign := t.TempDir(), t.TempDir()
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	} else {
		foreign = "/"
	}
	for dir, want := range map[string]string{own: own, foreign: "", "": "", ".": "", filepath.Join(own, "missing"): ""} {
		if got := ownRuntime(dir); got != want {
			t.Errorf("%s: %s", dir, got)
		}
	}
}
