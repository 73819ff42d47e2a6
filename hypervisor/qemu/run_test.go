package qemu_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// saved is saved once for the tests below, which run one after another.
func saved(t *testing.T) hypervisortest.Saved {
	return hypervisortest.Save(t, driver(t), hypervisortest.VMConfig(t), func(v hypervisor.VM) { hypervisortest.Ask(t, v, "set template") })
}

func within(t *testing.T) context.Context {
	t.Helper()
	return hypervisortest.Within(t)
}

func TestRunning(t *testing.T) {
	s := saved(t)
	t.Run("as an ordinary user", func(t *testing.T) { unprivileged(t, s) })
	t.Run("a flooded console stays bounded and does not block", func(t *testing.T) { flood(t, s) })
	t.Run("survives the kill of its parent", func(t *testing.T) { orphan(t, s) })
	t.Run("a dying VM is gone", func(t *testing.T) { adoptDying(t, s) })
	t.Run("a VM without record is ended by its sockets", func(t *testing.T) { testEnd(t, s) })
	t.Run("connections are opened ahead", func(t *testing.T) { ahead(t, s) })
	t.Run("a custom start is used", func(t *testing.T) { customStart(t, s) })
}

func unprivileged(t *testing.T, s hypervisortest.Saved) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a VM as another user")
	}
	const nobody = 65534
	group := uint32(nobody)
	if s.VM.Accel == hypervisor.KVM {
		var st syscall.Stat_t
		if err := syscall.Stat("/dev/kvm", &st); err != nil {
			t.Fatal(err)
		}
		group = st.Gid
	}
	o := hypervisortest.Options(t, "nobody")
	o.Start = func(cmd *exec.Cmd) error {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: group}
		return cmd.Start()
	}
	v := s.CloneAs(t, driver(t), o)
	if got := hypervisortest.Ask(t, v, "get"); got != "template" {
		t.Errorf("the guest says %q", got)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.Process().PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"Uid:\t65534\t65534\t65534\t65534",
		fmt.Sprintf("Gid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", group),
		"Groups:\t \n",
		"CapEff:\t0000000000000000",
		"Seccomp:\t2",
	} {
		if !strings.Contains(string(status), line) {
			t.Errorf("the process's status lacks %q", line)
		}
	}
	// A disk that only its owner may open reaches it by descriptor.
	path := hypervisortest.Disk(t, "mine")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if err := v.Attach(within(t), 0, disk, hypervisor.ReadWrite); err != nil {
		t.Fatal(err)
	}
	if got := hypervisortest.Ask(t, v, "read 0 0 4"); got != "6d696e65" {
		t.Errorf("the disk holds %s", got)
	}
}

func flood(t *testing.T, s hypervisortest.Saved) {
	ctx := within(t)
	console := hypervisortest.Console(t)
	files := hypervisor.Files{Memory: s.Memory, State: s.State, Console: console}
	v, err := driver(t).Clone(ctx, s.VM, files, hypervisortest.Options(t, "flood"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	for range 3 {
		hypervisortest.Ask(t, v, "flood %d", hypervisor.ConsoleLimit/2)
	}
	info, err := console.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > hypervisor.ConsoleLimit || info.Size() < hypervisor.ConsoleLimit/4 {
		t.Errorf("the console has %d bytes", info.Size())
	}
	// Without a reader the guest must go on.
	r := v.Record()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := driver(t).Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: "flood"})
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, w)
	w.Close()
	if got := hypervisortest.Ask(t, w, "flood 100000"); got != "flooded" {
		t.Errorf("the guest says %q", got)
	}
}

// orphan runs this test again as a parent, which starts a VM and is killed.
func orphan(t *testing.T, s hypervisortest.Saved) {
	ctx, d := within(t), driver(t)
	o := hypervisortest.Options(t, "orphan")
	record := filepath.Join(t.TempDir(), "record")
	config, _ := json.Marshal(s.VM)
	cmd := exec.Command(os.Args[0], "-test.run=^TestParent$")
	cmd.ExtraFiles = []*os.File{s.Memory, s.State}
	cmd.Env = append(os.Environ(), "BULKHEAD_TEST_PARENT="+record, "BULKHEAD_TEST_DIR="+o.Dir, "BULKHEAD_TEST_VM="+string(config))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.End(context.WithoutCancel(ctx), o.Dir) })
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatalf("the parent said %q: %v", line, err)
	}
	var r hypervisor.Record
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatal(err)
	}
	v, err := d.Adopt(ctx, r, hypervisor.Files{Console: hypervisortest.Console(t)}, hypervisor.Options{Name: o.Name})
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	if got := hypervisortest.Ask(t, v, "get"); got != "parent" {
		t.Errorf("the guest says %q", got)
	}
}

// TestParent is the parent of orphan's VM; by itself it does nothing.
func TestParent(t *testing.T) {
	if os.Getenv("BULKHEAD_TEST_PARENT") == "" {
		return
	}
	var m hypervisor.VMConfig
	if err := json.Unmarshal([]byte(os.Getenv("BULKHEAD_TEST_VM")), &m); err != nil {
		t.Fatal(err)
	}
	v, err := driver(t).Clone(within(t), m,
		hypervisor.Files{Memory: os.NewFile(3, "memory"), State: os.NewFile(4, "state")},
		hypervisor.Options{Dir: os.Getenv("BULKHEAD_TEST_DIR"), Name: "orphan"})
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.Ask(t, v, "set parent")
	record, _ := json.Marshal(v.Record())
	fmt.Printf("%s\n", record)
	select {} // until killed
}

// adoptDying adopts VMs that have just been killed. Their sockets and processes exist until their memory is freed.
func adoptDying(t *testing.T, s hypervisortest.Saved) {
	ctx, d := within(t), driver(t)
	for range 5 {
		r := s.Clone(t, d).Record()
		if err := r.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: "clone"}); !errors.Is(err, hypervisor.ErrGone) {
			t.Errorf("adopted with %v", err)
		}
	}
}

func testEnd(t *testing.T, s hypervisortest.Saved) {
	ctx, d := within(t), driver(t)
	o := hypervisortest.Options(t, "end")
	v := s.CloneAs(t, d, o)
	for range 2 {
		if err := d.End(ctx, o.Dir); err != nil {
			t.Fatal(err)
		}
	}
	<-v.Done()
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func customStart(t *testing.T, s hypervisortest.Saved) {
	o := hypervisortest.Options(t, "custom")
	refused := errors.New("refused")
	o.Start = func(*exec.Cmd) error { return refused }
	_, err := driver(t).Clone(within(t), s.VM, hypervisor.Files{Memory: s.Memory, State: s.State}, o)
	if !errors.Is(err, refused) {
		t.Errorf("Clone: %v", err)
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestKernelThatDoesNotBoot(t *testing.T) {
	ctx, d := within(t), driver(t)
	m := hypervisortest.VMConfig(t)
	m.Cmdline = "rdinit=/nothing root=/dev/nothing"
	v, err := d.Boot(ctx, m, hypervisor.Files{Console: hypervisortest.Console(t)}, hypervisortest.Options(t, "noboot"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	<-v.Done()
	var e *hypervisor.Error
	if err := v.Exit(); !errors.As(err, &e) || !strings.Contains(e.Console, "Kernel panic") {
		t.Errorf("error %v with console %q", err, e.Console)
	}
	explained := v.Explain("wait for the agent", context.DeadlineExceeded)
	if !errors.Is(explained, hypervisor.ErrGone) || !errors.Is(explained, context.DeadlineExceeded) ||
		strings.Contains(explained.Error(), "\n") {
		t.Errorf("explained: %q", explained)
	}
}

func TestFileThatIsNoKernel(t *testing.T) {
	ctx, d := within(t), driver(t)
	m := hypervisortest.VMConfig(t)
	m.Kernel = filepath.Join(t.TempDir(), "vmlinux")
	o := hypervisortest.Options(t, "nokernel")
	if _, err := d.Boot(ctx, m, hypervisor.Files{}, o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing kernel: %v", err)
	}
	if err := os.WriteFile(m.Kernel, []byte("not a kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := d.Boot(ctx, m, hypervisor.Files{}, o)
	var e *hypervisor.Error
	if !errors.As(err, &e) || e.Stderr == "" || strings.Contains(err.Error(), "\n") {
		t.Errorf("no kernel: %v", err)
	}
	t.Log(err)
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// ahead: an owner that may create no sockets has only the connections that were opened before any was read. The next
// owner has as many of its own.
func ahead(t *testing.T, s hypervisortest.Saved) {
	ctx, d := within(t), driver(t)
	const connections = 3
	var opened procid.ID
	o := hypervisortest.Options(t, "ahead")
	o.Connections = connections
	o.Opened = func(process procid.ID) error {
		opened = process
		return nil
	}
	v, err := d.Clone(ctx, s.VM, hypervisor.Files{Memory: s.Memory, State: s.State}, o)
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	if opened != v.Process() {
		t.Errorf("Opened was called with %v, not %v", opened, v.Process())
	}
	for range connections {
		if got := hypervisortest.Ask(t, v, "get"); got != "template" {
			t.Errorf("the guest says %q", got)
		}
	}
	if _, err := v.Connect(ctx); !errors.Is(err, hypervisor.ErrSpent) {
		t.Errorf("one more connection: %v", err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := d.Adopt(ctx, v.Record(), hypervisor.Files{}, hypervisor.Options{Name: o.Name, Connections: 1})
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, w)
	if got := hypervisortest.Ask(t, w, "get"); got != "template" {
		t.Errorf("the guest says %q to the next owner", got)
	}
	if _, err := w.Connect(ctx); !errors.Is(err, hypervisor.ErrSpent) {
		t.Errorf("one more connection: %v", err)
	}
	refusal := errors.New("refused")
	o = hypervisor.Options{Name: o.Name, Opened: func(procid.ID) error { return refusal }}
	_, err = d.Adopt(ctx, v.Record(), hypervisor.Files{}, o)
	if !errors.Is(err, refusal) {
		t.Errorf("an owner that refuses: %v", err)
	}
}
