package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestUpgrade: a pod with the shim, agent and server of the previous commit works with this commit's engine: its
// log, its directory of the host, and calls to it.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	bin, guest := previous(t)
	w := newWorld(t)
	now, nowGuest := w.bin, w.guest
	w.shutdown(t)
	w.bin, w.guest = bin, guest
	dir := w.home(t, "shared")
	w.must(t, strings.Replace(sharing(t, "old", dir, "d"), `[sleep, "100000"]`, `[sh, -c, "`+counting+`"]`, 1), "run", "-d", "-q", "-")
	was := w.find(t, "old")
	w.must(t, "", "exec", "old", "--", "sh", "-c", "echo old >/d/file")
	w.shutdown(t)

	w.bin, w.guest = now, nowGuest
	if got := w.must(t, "", "exec", "old", "--", "sh", "-c", "cat /d/file; echo new >/d/file"); got != "old\n" {
		t.Errorf("its earlier output: %q", got)
	}
	if is := w.find(t, "old"); is.Sandbox != was.Sandbox || is.Restarts != 0 || is.Status != "Running" {
		t.Errorf("it was %+v and is %+v", was, is)
	}
	n := checkCounting(t, w.log(t, "old"))
	for _, p := range w.processes() { // the next ones are this commit's
		if p.shim() == was.Sandbox || p.is("share") {
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.soon(t, `^new\n$`, "exec", "old", "--", "cat", "/d/file")
	for _, args := range [][]string{{"pause", "old"}, {"resume", "old"}, {"stats", "--no-stream", "old"}} {
		w.must(t, "", args...)
	}
	for end := time.Now().Add(testdeadline.For(20 * time.Second)); checkCounting(t, w.log(t, "old")) <= n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("its log stands still at %d", n)
		}
	}
	w.must(t, "", "restart", "old") // in a VM of this commit
	w.soon(t, `^new\n$`, "exec", "old", "--", "cat", "/d/file")
	w.must(t, "", "rm", "-f", "old")
	w.end(t)
}

// previous returns the programs and the guest of the previous commit, which are built once.
func previous(t *testing.T) (bin, guest string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(10*time.Minute))
	defer cancel()
	do := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := do(root, "git", "rev-parse", "HEAD~1")
	cache := filepath.Join(root, "build/previous")
	at := filepath.Join(cache, commit)
	bin, guest = filepath.Join(at, "bin"), filepath.Join(at, "guest")
	if _, err := os.Stat(filepath.Join(guest, "bundle.json")); err == nil {
		return bin, guest
	}
	if err := os.RemoveAll(cache); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(at, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	do(root, "git", "archive", "--output="+filepath.Join(at, "source.tar"), commit)
	do(at, "tar", "-xf", "source.tar", "-C", source)
	const tags = "containers_image_openpgp,grpcnotrace,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,nri_no_wasm"
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	do(source, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", tags, "-o", bin, "./cmd/...")
	flags, err := os.ReadFile(filepath.Join(root, "build/guest-flags")) // of the kernel that make has fetched
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"bundle"}, strings.Fields(string(flags))...)
	args = append(args, "--crun-source", "build/crun/source", "--agent", filepath.Join(bin, "bulkhead-agent"), "--out", guest)
	do(root, filepath.Join(bin, "bulkhead-guest"), args...)
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}
	return bin, guest
}
