package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/internal/test/testsock"
)

// TestEndKeepsOtherVMs: a VM's directory that was replaced by a link to another VM's is not followed. End neither
// ends the other VM nor removes its sockets.
func TestEndKeepsOtherVMs(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	pod, other := filepath.Join(base, "pod"), filepath.Join(base, "other", "vm")
	for _, dir := range []string{pod, other} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var connected []<-chan struct{}
	for _, name := range []string{qmpSocket, monitorSocket} {
		connected = append(connected, testsock.Listen(t, filepath.Join(other, name)))
	}
	if err := os.Symlink(other, filepath.Join(pod, "vm")); err != nil {
		t.Fatal(err)
	}
	if err := (Driver{}).End(t.Context(), filepath.Join(pod, "vm")); err == nil {
		t.Error("End returned no error for a link")
	}
	RemoveSockets(filepath.Join(pod, "vm"))
	for _, name := range []string{qmpSocket, monitorSocket} {
		if _, err := os.Lstat(filepath.Join(other, name)); err != nil {
			t.Errorf("another VM's socket: %v", err)
		}
	}
	if len(connected[0])+len(connected[1]) != 0 {
		t.Errorf("End connected to another VM")
	}
}

// TestAdoptPlanted: a record that names another process of the user, beside sockets that answer like QEMU, kills no
// process.
func TestAdoptPlanted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		own  bool
	}{
		{name: "its own", args: []string{"-nodefaults", "-name", "bulkhead-mine", "-display"}, own: true},
		{name: "no VM"},
		{name: "another VM", args: []string{"-name", "bulkhead-minor"}},
		{name: "another argument", args: []string{"-title", "bulkhead-mine"}},
		{name: "the name alone", args: []string{"bulkhead-mine"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx := testdeadline.Context(t, 5*time.Second)
			process := testproc.Start(t, exec.Command("sh", append([]string{"-c", "read line"}, test.args...)...))
			r := hypervisor.Record{Process: process, Dir: impostor(t)}
			v, err := Driver{}.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: "mine"})
			if (err == nil) != test.own || errors.Is(err, hypervisor.ErrGone) {
				t.Errorf("adopted: %v", err)
			}
			if v != nil {
				err := errors.Join(v.Kill(ctx), v.Close())
				if err != nil {
					t.Error(err)
				}
			}
			if process.Alive() == test.own {
				t.Errorf("alive: %v", process.Alive())
			}
		})
	}
}

// impostor returns a directory with the sockets of a VM, which greet like QEMU.
func impostor(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bk") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{consoleSocket, channelSocket, qmpSocket} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if name == qmpSocket {
			go greet(l)
		}
	}
	return dir
}

// greet negotiates with one client. The client's first command has the id 1.
func greet(l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintln(conn, `{"QMP": {"version": {}, "capabilities": []}}`)
	answer := make([]byte, 4096)
	if _, err := conn.Read(answer); err == nil {
		fmt.Fprintln(conn, `{"return": {}, "id": 1}`)
		_, _ = conn.Read(answer) // until the client leaves
	}
}
