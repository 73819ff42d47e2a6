package bootstrap_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
)

func TestRoundTrip(t *testing.T) {
	near, far, err := bootstrap.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	conn, err := bootstrap.Conn(far)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, []byte("pages"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sent := bootstrap.Message{
		ID: "x", Instance: "run", StateDir: "/s", DataDir: "/d",
		VM: hypervisor.VMConfig{Kernel: "k", VCPUs: 2, Memory: 256, Accel: hypervisor.TCG},
	}
	if err := bootstrap.Send(near, sent, map[string]*os.File{bootstrap.Memory: f, bootstrap.State: nil}); err != nil {
		t.Fatal(err)
	}
	got, files, err := bootstrap.Receive(conn)
	if err != nil {
		t.Fatal(err)
	}
	sent.Version, sent.Files = bootstrap.Version, []string{bootstrap.Memory}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	if b, err := io.ReadAll(files[bootstrap.Memory]); err != nil || string(b) != "pages" {
		t.Errorf("memory holds %q, %v", b, err)
	}
	files[bootstrap.Memory].Close()

	if err := bootstrap.Answer(conn, errors.New("no QEMU")); err != nil {
		t.Fatal(err)
	}
	if r, err := bootstrap.Await(near); err != nil || r.Error != "no QEMU" {
		t.Errorf("reply %+v, %v", r, err)
	}
	conn.Close()
	if _, err := bootstrap.Await(near); !errors.Is(err, io.EOF) {
		t.Errorf("after the shim's end: %v", err)
	}
}

func TestReceiveRefuses(t *testing.T) {
	tests := map[string]struct {
		message string
		want    error
	}{
		"garbage":         {"{", nil},
		"another version": {`{"version":99}`, bootstrap.ErrVersion},
		"missing files":   {`{"version":1,"files":["memory"]}`, nil},
	}
	for name, test := range tests {
		near, far, err := bootstrap.Pair()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := bootstrap.Conn(far)
		if err != nil {
			t.Fatal(err)
		}
		if err := fdpass.Send(near, []byte(test.message)); err != nil {
			t.Fatal(err)
		}
		_, _, err = bootstrap.Receive(conn)
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		near.Close()
		conn.Close()
	}
}

// TestBounds: a message that the receiver would cut is not sent. Of two files of one name, the later one is returned
// and the other closed. An end before a message is io.EOF.
func TestBounds(t *testing.T) {
	near, far, err := bootstrap.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	conn, err := bootstrap.Conn(far)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	long := bootstrap.Message{ID: strings.Repeat("x", 1<<20)}
	if err := bootstrap.Send(near, long, nil); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a message too long: %v", err)
	}
	var pipes [2]*os.File // one end is sent, the other shows whether it was closed
	var told [2]*os.File
	for i := range pipes {
		if told[i], pipes[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		defer told[i].Close()
	}
	message := fmt.Sprintf(`{"version":%d,"files":["memory","memory"]}`, bootstrap.Version)
	if err := fdpass.Send(near, []byte(message), pipes[:]...); err != nil {
		t.Fatal(err)
	}
	pipes[0].Close()
	pipes[1].Close()
	_, files, err := bootstrap.Receive(conn)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if _, err := io.WriteString(files[bootstrap.Memory], "later"); err != nil {
		t.Error(err)
	}
	files[bootstrap.Memory].Close()
	for i, want := range []string{"", "later"} {
		if b, err := io.ReadAll(told[i]); err != nil || string(b) != want {
			t.Errorf("file %d: %q, %v", i, b, err)
		}
	}
	near.Close()
	if _, _, err := bootstrap.Receive(conn); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}
