package cpio_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/cpio"
)

var entries = []cpio.Entry{
	{Name: "dev", Mode: cpio.Dir | 0o755},
	{Name: "dev/console", Mode: cpio.Device | 0o600, Major: 5, Minor: 1},
	{Name: "odd", Mode: cpio.File | 0o755, Data: []byte("hello")},
	{Name: "empty", Mode: cpio.File | 0o644},
	{Name: "four", Mode: cpio.File | 0o644, Data: []byte("1234")},
}

// The archive is read by busybox's cpio, which shares nothing with this one.
func TestAnotherReader(t *testing.T) {
	var archive bytes.Buffer
	if err := cpio.Write(&archive, entries); err != nil {
		t.Fatal(err)
	}
	list := busybox(t, &archive, "cpio", "-tv")
	for _, want := range []string{"drwxr-xr-x 0/0", "crw------- 0/0", "-rwxr-xr-x 0/0", "5 1970-01-01", "odd", "empty", "four"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %q:\n%s", want, list)
		}
	}
	archive.Reset()
	if err := cpio.Write(&archive, entries); err != nil {
		t.Fatal(err)
	}
	if got := busybox(t, &archive, "cpio", "-i", "--to-stdout", "odd", "four"); got != "hello1234" {
		t.Errorf("content %q", got)
	}
}

func TestSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	for _, out := range []*bytes.Buffer{&a, &b} {
		if err := cpio.Write(out, entries); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(a.Bytes(), b.Bytes()); diff != "" {
		t.Error(diff)
	}
	if a.Len()%4 != 0 {
		t.Errorf("%d bytes are not a multiple of four", a.Len())
	}
}

func busybox(t *testing.T, in *bytes.Buffer, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "busybox", args...)
	cmd.Stdin, cmd.Env = in, []string{"TZ=UTC", "PATH=/bin:/usr/bin"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("busybox %v: %v: %s", args, err, stderr.String())
	}
	return string(out)
}
