package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// someone is an ordinary user whom nobody else is.
const someone = 54321

// TestOrdinaryUser: a user without any privilege, and with the directories that are every user's, shares
// directories of his own, and no others'; what is killed while his pods write is as good as under root.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("only root can be somebody else")
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
		t.Errorf("what the pod made is user %d's", uid)
	}
	// Of what lies above Bulkhead's own, that is empty, and nothing can be put there.
	script = "ls -A /all /all/data/bulkhead /all/bulkhead; mkdir /all/bulkhead/x 2>&1; true"
	got = w.must(t, "", "run", "-q", "--rm", "-v", w.dir+":/all", image, "sh", "-c", script)
	want := "\n\n/all/bulkhead:\n\n/all/data/bulkhead:\nmkdir: can't create directory '/all/bulkhead/x': Read-only file system\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("what lies above Bulkhead's own: %q", got)
	}
	if c := w.run(t, "", "run", "--rm", "-v", dir+"/others/file:/f", image, "true"); c.ProcessState.ExitCode() == 0 {
		t.Errorf("a file that the user cannot reach: %v", c)
	}
	midWrite(t, w)
}

func ownerOf(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
