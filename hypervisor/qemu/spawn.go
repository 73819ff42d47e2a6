package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/tap"
)

// The sockets in a VM's directory.
const (
	qmpSocket     = "qmp"
	monitorSocket = "mon"
	channelSocket = "ch"
	consoleSocket = "con"
)

// vmSockets are all sockets, in the order in which a process inherits them, from firstFD on.
var vmSockets = []string{qmpSocket, monitorSocket, channelSocket, consoleSocket, hypervisor.ShareSocket}

// start spawns the process and connects to it. The process inherits listening sockets that are created here. So the
// connections are in their queues before QEMU's first instruction, and only its greeting is waited for.
func (d Driver) start(
	ctx context.Context,
	m hypervisor.VMConfig,
	f hypervisor.Files,
	o hypervisor.Options,
	mode startMode,
) (v *vm, err error) {
	if err := errors.Join(m.Validate(), o.Validate()); err != nil {
		return nil, fmt.Errorf("start a VM: %w", err)
	}
	v = &vm{
		record:  hypervisor.Record{Dir: o.Dir, VM: m},
		console: newConsole(f.Console), done: make(chan struct{}),
	}
	if v.stderr, err = newStderr(); err != nil {
		return nil, v.failed("spawn", "prepare the VM's files", err)
	}
	began := time.Now()
	p := &parcel{dir: o.Dir}
	defer p.close()
	fd := fds{
		qmp: p.listen(qmpSocket), monitor: p.listen(monitorSocket),
		channel: p.listen(channelSocket), console: p.listen(consoleSocket),
		share:  p.listen(hypervisor.ShareSocket),
		memory: p.file(f.Memory),
	}
	if m.Network.Tap() {
		fd.tap = p.tap(f.Tap)
	}
	if mode == boot {
		fd.kernel, fd.initrd = p.open(m.Kernel), p.open(m.Initrd)
	}
	if p.err != nil {
		p.unlink()
		return nil, v.failed("spawn", "prepare the VM's files", p.err)
	}
	cmd := exec.Command(d.Program, arguments(m, o, fd, mode)...)
	cmd.Env = []string{"LC_ALL=C"}
	if mode == clone && d.Holes != "" {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+d.Holes)
	}
	cmd.Dir = "/"
	cmd.ExtraFiles = p.files
	cmd.Stderr = v.stderr
	// A session of its own: neither the terminal's Ctrl-C nor the parent's end reaches the VM.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	run := (*exec.Cmd).Start
	if o.Start != nil {
		run = o.Start
	}
	opened, err := v.open(ctx, o.Connections)
	if err == nil {
		err = run(cmd)
	}
	if err != nil {
		opened.close()
		p.unlink()
		return nil, v.failed("spawn", "start QEMU", err)
	}
	fault.Point("qemu.spawned")
	v.child = cmd
	v.record.Process, err = procid.Of(cmd.Process.Pid)
	if err != nil { // it has ended already, and is a zombie of this process
		cmd.Wait()
		opened.close()
		p.unlink()
		return nil, v.failed("spawn", "start QEMU", err)
	}
	p.close() // from here on a dead QEMU refuses connections
	v.timed("spawn", &began)
	if err := v.watchProcess(); err != nil {
		opened.close()
		v.abandon()
		return nil, v.failed("connect", "watch the process", err)
	}
	if err := v.connect(ctx, opened, o); err != nil {
		v.abandon()
		return nil, err
	}
	v.timed("greet", &began)
	return v, nil
}

// parcel collects the files that a process inherits. It keeps the first error.
type parcel struct {
	dir     string
	files   []*os.File
	owned   []*os.File
	sockets []string
	err     error
}

// firstFD is the number of exec.Cmd's first extra file in the child.
const firstFD = 3

func (p *parcel) file(f *os.File) int {
	if f == nil {
		return 0
	}
	p.files = append(p.files, f)
	return firstFD + len(p.files) - 1
}

func (p *parcel) own(f *os.File) int {
	p.owned = append(p.owned, f)
	return p.file(f)
}

// open passes a file that QEMU opens again through /proc/self/fd. QEMU's user must be able to read the file, but not
// the directories above it.
func (p *parcel) open(path string) int {
	if p.err != nil || path == "" {
		return 0
	}
	f, err := os.Open(path)
	if err != nil {
		p.err = err
		return 0
	}
	return p.own(f)
}

// tap passes a network card. If f is nil, it passes one that leads nowhere.
func (p *parcel) tap(f *os.File) int {
	if p.err != nil || f != nil {
		return p.file(f)
	}
	if f, p.err = tap.Idle(); p.err != nil {
		return 0
	}
	return p.own(f)
}

func (p *parcel) listen(name string) int {
	if p.err != nil {
		return 0
	}
	path := filepath.Join(p.dir, name)
	f, err := listen(path)
	if err != nil {
		p.err = err
		return 0
	}
	p.sockets = append(p.sockets, path)
	return p.own(f)
}

func listen(path string) (*os.File, error) {
	l, err := podsock.Listen(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

func (p *parcel) close() {
	for _, f := range p.owned {
		f.Close()
	}
	p.owned = nil
}

func (p *parcel) unlink() {
	for _, path := range p.sockets {
		os.Remove(path)
	}
}
