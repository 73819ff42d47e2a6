package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// someone is the id of an ordinary user that nothing else uses.
const someone = 54321

// TestOrdinaryUser: an ordinary user with the usual directories can share its own directories, and no others. Kills
// while its pods write do no more harm than for root.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("only root can run as another user")
	}
	w := newWorldOf(t, someone, "off")
	dir := w.home(t, "own")
	for name, mode := range map[string]os.FileMode{"others": 0o700, "readable": 0o755} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), []byte("root's\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := "id -u; echo mine >/d/new; stat -c %u:%g /d/new /d/readable; cat /d/readable/file; " +
		"cat /d/others/file 2>&1; echo x 2>&1 >/d/readable/x; true"
	got := w.must(t, "", "run", "-q", "--rm", "-v", dir+":/d", image, "sh", "-c", script)
	for _, want := range []string{"0\n0:0\n65534:65534\nroot's\n", "others/file': Permission denied", "readable/x: Permission denied"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q has no %q", got, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(info); uid != someone {
		t.Errorf("the pod's file belongs to user %d", uid)
	}
	// The directories above Bulkhead's appear empty, and nothing can be created in them.
	script = "ls -A /all /all/data/bulkhead /all/bulkhead; mkdir /all/bulkhead/x 2>&1; true"
	got = w.must(t, "", "run", "-q", "--rm", "-v", w.dir+":/all", image, "sh", "-c", script)
	want := "\n\n/all/bulkhead:\n\n/all/data/bulkhead:\nmkdir: can't create directory '/all/bulkhead/x': Read-only file system\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("the directories above Bulkhead's own: %q", got)
	}
	if c := w.run(t, "", "run", "--rm", "-v", dir+"/others/file:/f", image, "true"); c.ProcessState.ExitCode() == 0 {
		t.Errorf("a file that the user cannot reach: %v", c)
	}
	midWrite(t, w)
}

func ownerOf(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
