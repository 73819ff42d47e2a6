package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestPastaIsConfined: distributions' AppArmor profiles of pasta deny other processes (a pid) and files of Bulkhead
// (paths), and allow any program below /bin and /usr/bin.
func TestPastaIsConfined(t *testing.T) {
	t.Parallel()
	args := pastaArgs()
	args = args[slices.Index(args, "pasta"):]
	end := slices.Index(args, "--")
	if end < 0 || args[end+1] != "/bin/sh" {
		t.Fatalf("pasta starts no holder: %q", args)
	}
	for _, arg := range args[:end] {
		if _, err := strconv.Atoi(arg); err == nil || strings.Contains(arg, "/") {
			t.Errorf("pasta gets %q: %q", arg, args)
		}
	}
}

// fakePasta puts a script named pasta into PATH.
func fakePasta(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pasta"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestPastaFails: a pasta that ends leaves nothing, not even its waiting child, and its error is reported. It creates
// nothing before it is on record.
func TestPastaFails(t *testing.T) {
	ctx := testdeadline.Context(t, 10*time.Second)
	fakePasta(t, "sleep 600 &\necho no tun today >&2\nexit 1\n")
	var kept []record
	r, err := create(ctx, t.TempDir(), func(r record) error {
		kept = append(kept, r)
		children, err := r.Pasta.Children()
		if err != nil || len(children) != 0 {
			t.Errorf("pasta has started before it is on record: %v, %v", children, err)
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "no tun today") {
		t.Errorf("%v", err)
	}
	if len(kept) != 1 || kept[0].Pasta.PID == 0 {
		t.Errorf("kept %+v of %+v", kept, r)
	}
	gone(ctx, t, r.Pasta)
}

// TestNotOnRecord: pasta does not start if it cannot be recorded.
func TestNotOnRecord(t *testing.T) {
	ctx := testdeadline.Context(t, 10*time.Second)
	begun := filepath.Join(t.TempDir(), "begun")
	fakePasta(t, "touch "+begun+"\n")
	full := errors.New("disk full")
	r, err := create(ctx, t.TempDir(), func(record) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	gone(ctx, t, r.Pasta)
	if _, err := os.Stat(begun); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pasta has started: %v", err)
	}
}

// gone waits until no process of pasta's group is left.
func gone(ctx context.Context, t *testing.T, pasta procid.ID) {
	t.Helper()
	if err := killProcesses(ctx, filepath.Join(t.TempDir(), "namespace.json"), record{Pasta: pasta}); err != nil {
		t.Error(err)
	}
	until(ctx, t, "pasta's group ends", func() bool { return errors.Is(unix.Kill(-pasta.PID, 0), unix.ESRCH) })
}
