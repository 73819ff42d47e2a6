package procid

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDescriptor(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := exec.Command("cat")
	hold, err := cmd.StdinPipe() // cat ends with it
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer hold.Close()
	out.Close()
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	f, err := id.Descriptor(3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("hello"); err != nil {
		t.Error(err)
	}
	f.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(in, buf); err != nil || string(buf) != "hello" {
		t.Errorf("%q, %v", buf, err)
	}
	if _, err := id.Descriptor(99); !errors.Is(err, unix.EBADF) {
		t.Errorf("a descriptor that is not open: %v", err)
	}
	other := id
	other.Start++
	if _, err := other.Descriptor(3); !errors.Is(err, ErrGone) {
		t.Errorf("another process of that pid: %v", err)
	}
}
