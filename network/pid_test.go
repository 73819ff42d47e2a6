package network

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/testproc"
)

// TestReadPID: the pid of another process, or what is no pid at all, is never
// taken for pasta's, which is killed one day.
func TestReadPID(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; read -r line", "61")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	testproc.Start(t, cmd)
	// Start returns in the middle of the exec, before there are arguments to be seen.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	dir, pid, uid := t.TempDir(), strconv.Itoa(cmd.Process.Pid), os.Geteuid()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", pid+"\n")
	if id, err := readPID(good, uid, "61"); err != nil || id.PID != cmd.Process.Pid {
		t.Errorf("%v, %v", id, err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path string
		uid  int
		arg  string
	}{
		"link":             {link, uid, "61"},
		"fifo":             {fifo, uid, "61"},
		"another user":     {good, uid + 1, "61"},
		"another program":  {good, uid, "62"},
		"no number":        {file("word", "self"), uid, "61"},
		"negative":         {file("negative", "-1"), uid, "61"},
		"itself":           {file("itself", strconv.Itoa(os.Getpid())), uid, "61"},
		"nothing has that": {file("none", "4194999"), uid, "61"},
	} {
		if id, err := readPID(test.path, test.uid, test.arg); err == nil {
			t.Errorf("%s: %v", name, id)
		}
	}
}
