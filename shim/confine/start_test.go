package confine_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// TestStart: a program in QEMU's place can use what it inherits. It can neither change its pod's directory nor reach a
// unix socket or another process. Its starter still can.
func TestStart(t *testing.T) {
	t.Parallel()
	program, readable := program(t, "child"), file(t, "library")
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
	console, err := os.Create(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	library, err := os.Open(readable)
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()

	for _, test := range []struct {
		name    string
		sockets []uint32
		works   []string
	}{
		{"network", []uint32{unix.AF_INET, unix.AF_INET6}, []string{"internet socket"}},
		{"no network", nil, nil},
	} {
		if test.name != "network" { // the first program took the connection
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
		cmd := exec.CommandContext(t.Context(), program, dir, path, abstract, readable)
		cmd.ExtraFiles = []*os.File{listener, console}
		cmd.Stdout, cmd.Stderr = w, w
		missing, err := confine.Start(cmd, confine.Policy{
			Read: []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", program, readable, "/nowhere"}, Unlisted: []string{"/proc"},
			ReadFiles: []*os.File{library}, Write: []string{"/dev/null"}, Sockets: test.sockets,
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
		got := results(out.String())
		got["walls"] = fmt.Sprint(missing)
		walls(t, got, "truncation, abstract sockets, signals")
		judge(t, got, append(test.works, "inherited socket", "inherited file", "read")...)
		if t.Failed() {
			t.Logf("%s:\n%s", test.name, out.String())
		}
	}

	// This process is not confined.
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
