// Package devices lists the guest's devices, and makes the BPF programs that decide which of them a container may use. A
// program is made once for each set of rules, because loading and verifying it takes an emulated VM some milliseconds.
package devices

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
)

// most bounds the kept programs: for ordinary and privileged containers, and some more.
const most = 8

// Programs keeps programs by the text of their rules. The zero value is empty; its methods are safe for concurrent use.
type Programs struct {
	mu  sync.Mutex
	all map[string]*os.File
}

// Program returns the program for OCI device rules. The caller must close it.
func (p *Programs) Program(rules string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	program := p.all[rules]
	if program == nil {
		code, err := compile(rules)
		if err != nil {
			return nil, fmt.Errorf("device rules: %w", err)
		}
		if program, err = load(code); err != nil {
			return nil, fmt.Errorf("load the device program: %w", err)
		}
		if len(p.all) == most {
			return program, nil
		}
		if p.all == nil {
			p.all = map[string]*os.File{}
		}
		p.all[rules] = program
	}
	fd, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("device program: %w", err)
	}
	return os.NewFile(uintptr(fd), "device program"), nil
}

// Attach attaches a program to a cgroup that has none.
func Attach(program *os.File, to cgroup.Dir) error {
	dir, err := os.Open(string(to))
	if err != nil {
		return fmt.Errorf("device program: %w", err)
	}
	defer dir.Close()
	attr := struct{ target, program, kind, flags uint32 }{
		uint32(dir.Fd()), uint32(program.Fd()), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI, // like crun
	}
	if _, err := bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return fmt.Errorf("attach the device program to %s: %w", to, err)
	}
	return nil
}

// load loads a program.
func load(code []instruction) (*os.File, error) {
	license := []byte("GPL\x00")
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&code[0])
	pinned.Pin(&license[0])
	attr := struct {
		kind, count       uint32
		code, license     uint64
		logLevel, logSize uint32
		log               uint64
		version, flags    uint32
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(code)), code: uint64(uintptr(unsafe.Pointer(&code[0]))),
		license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "device program"), nil // close-on-exec
}

func bpf(command int, attr unsafe.Pointer, size uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
