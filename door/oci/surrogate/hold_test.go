package surrogate

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHold: the surrogate of a VM ends with the VM, and when it is asked to.
func TestHold(t *testing.T) {
	vm := exec.Command("sleep", "1000")
	if err := vm.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(vm.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	door, control := os.NewFile(uintptr(pair[0]), "door"), os.NewFile(uintptr(pair[1]), "control")
	defer door.Close()
	defer control.Close()
	if err := unix.Sendmsg(pair[0], []byte(Hold), unix.UnixRights(fd), nil, 0); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	buf := make([]byte, 100)
	n, file, err := receive(control, buf)
	if err != nil || string(buf[:n]) != Hold || file == nil {
		t.Fatalf("receive: got %q, %v, %v", buf[:n], file, err)
	}
	defer file.Close()
	s := &process{vm: file}
	if err := s.do(Hold, nil); err != nil {
		t.Error(err)
	}
	if err := (&process{}).do(Hold, nil); err == nil {
		t.Error("without a file: got nil, want an error")
	}
	signals := make(chan os.Signal, 2)
	signals <- unix.SIGHUP // is ignored
	signals <- unix.SIGTERM
	if code := s.hold(signals); code != 0 {
		t.Errorf("after SIGTERM: got %d, want 0", code)
	}
	if err := vm.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = vm.Wait()
	if code := s.hold(signals); code != lostCode {
		t.Errorf("after the VM's end: got %d, want %d", code, lostCode)
	}
	if _, err := door.WriteString("plain"); err != nil {
		t.Fatal(err)
	}
	if n, file, err := receive(control, buf); err != nil || string(buf[:n]) != "plain" || file != nil {
		t.Errorf("receive: got %q, %v, %v", buf[:n], file, err)
	}
}
