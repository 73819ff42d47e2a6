package confine_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// TestStart: what is started in a machine's place has what it inherits, and can
// neither change its pod's directory nor reach a unix socket or another
// process. Who started it still can.
func TestStart(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "child")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/child").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	dir := t.TempDir()
	path, abstract := filepath.Join(dir, "shim.sock"), "@bulkhead-test-"+filepath.Base(t.TempDir())+t.Name()+strings.ReplaceAll(dir, "/", "-")
	for _, address := range []string{path, abstract} {
		l, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	own, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "qmp"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	listener, err := own.File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	waiting, err := net.Dial("unix", filepath.Join(dir, "qmp"))
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	file, err := os.Create(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	for _, test := range []struct {
		name     string
		sockets  []int
		internet bool
	}{{"network", []int{unix.AF_INET, unix.AF_INET6}, true}, {"no network", nil, false}} {
		if test.name != "network" { // the connection was the first one's
			if waiting, err = net.Dial("unix", filepath.Join(dir, "qmp")); err != nil {
				t.Fatal(err)
			}
			defer waiting.Close()
		}
		var out strings.Builder
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, dir, path, abstract)
		cmd.ExtraFiles = []*os.File{listener, file}
		cmd.Stdout, cmd.Stderr = w, w
		walls, err := confine.Start(cmd, confine.Policy{
			Read:  []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc", filepath.Dir(program)},
			Write: []string{"/dev/null"}, Sockets: test.sockets,
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 16<<10)
		for n := 0; err == nil; n, err = r.Read(buf) {
			out.Write(buf[:n])
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		r.Close()
		if walls.Landlock != nil && strings.Contains(walls.Landlock.Error(), "the kernel lacks it") {
			t.Skip(walls.Err())
		}
		if walls.Err() != nil {
			t.Error(walls.Err())
		}
		works := map[string]bool{"inherited socket": true, "inherited file": true, "internet socket": test.internet}
		for line := range strings.Lines(out.String()) {
			what, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if (result == "<nil>") != works[what] {
				t.Errorf("%s: %s: %s", test.name, what, result)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != 13 {
			t.Errorf("%s: %d lines, of 13:\n%s", test.name, n, out.String())
		}
	}

	// Nothing of it is this process's.
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
