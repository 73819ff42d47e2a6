package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// injected is a process that executes system calls of the test in its first thread. Its other threads keep running.
// All methods must be called on the thread that called inject.
type injected struct {
	pid     int
	memory  *os.File
	regs    unix.PtraceRegs // the original ones
	syscall uint64          // the address of a syscall instruction
	scratch uint64          // memory for the data that arguments point to
	used    uint64
	status  unix.WaitStatus // the last one
}

// suspendSeccomp is PTRACE_O_SUSPEND_SECCOMP, which suspends all filters of system calls.
const suspendSeccomp = 1 << 21

const scratchSize = 1 << 16

// inject attaches to a process. The process ends with the caller's thread.
func inject(t *testing.T, pid, options int) *injected {
	t.Helper()
	in := &injected{pid: pid}
	err := in.attach(options | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACEEXEC |
		unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE)
	if err != nil {
		t.Fatalf("inject code into process %d: %v", pid, err)
	}
	in.scratch = uint64(in.call(unix.SYS_MMAP, 0, scratchSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1, 0))
	if in.scratch%4096 != 0 {
		t.Fatalf("process %d gets no memory: %v", pid, unix.Errno(-in.scratch))
	}
	return in
}

func (in *injected) attach(options int) (err error) {
	runtime.LockOSThread()
	if in.syscall, err = instruction(in.pid); err != nil {
		return err
	}
	if in.memory, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", in.pid), os.O_RDWR, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(in.pid), 0, uintptr(options), 0, 0); errno != 0 {
		return fmt.Errorf("seize: %w", errno)
	}
	if err := unix.PtraceInterrupt(in.pid); err != nil {
		return fmt.Errorf("interrupt: %w", err)
	}
	if !in.wait() {
		return errors.New("it has ended")
	}
	return unix.PtraceGetRegs(in.pid, &in.regs)
}

// instruction finds a syscall instruction in the code page that the kernel maps into every process.
func instruction(pid int) (uint64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, err
		}
		code := make([]byte, to-from)
		here, there := []unix.Iovec{{Base: &code[0], Len: to - from}}, []unix.RemoteIovec{{Base: uintptr(from), Len: int(to - from)}}
		if _, err := unix.ProcessVMReadv(pid, here, there, 0); err != nil {
			return 0, err
		}
		if i := bytes.Index(code, []byte{0x0f, 0x05}); i >= 0 {
			return from + uint64(i), nil
		}
	}
	return 0, errors.New("no syscall instruction")
}

// wait waits for the next stop of the first thread. It returns false if the thread ends instead or does not stop.
func (in *injected) wait() bool {
	for deadline := time.Now().Add(testdeadline.For(20 * time.Second)); ; time.Sleep(100 * time.Microsecond) {
		n, err := unix.Wait4(in.pid, &in.status, unix.WALL|unix.WNOHANG, nil)
		if n == in.pid {
			return in.status.Stopped()
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		// If a filter kills only the first thread, the kernel reports it after the other threads have ended.
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.pid)); bytes.Contains(stat, []byte(") Z ")) {
			in.status = unix.WaitStatus(unix.SIGSYS)
			return false
		}
		if time.Now().After(deadline) {
			in.status = 0
			return false
		}
	}
}

// call makes a system call and returns its result. Strings and bytes are passed by address. A negative result is an
// errno.
func (in *injected) call(number int, args ...any) int64 {
	in.used = 0
	var word [6]uint64
	for i, arg := range args {
		word[i] = in.argument(arg)
	}
	r := in.regs
	r.Orig_rax, r.Rax, r.Rip = ^uint64(0), uint64(number), in.syscall
	r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9 = word[0], word[1], word[2], word[3], word[4], word[5]
	if err := unix.PtraceSetRegs(in.pid, &r); err != nil {
		return killed
	}
	for stops := 0; stops < 2; {
		if unix.PtraceSyscall(in.pid, 0) != nil || !in.wait() {
			return killed
		}
		switch in.status.TrapCause() {
		case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK, unix.PTRACE_EVENT_CLONE:
			in.endChild()
		case unix.PTRACE_EVENT_EXEC:
			return replaced
		default:
			if in.status.StopSignal() == unix.SIGTRAP|0x80 {
				stops++
			}
		}
	}
	if err := unix.PtraceGetRegs(in.pid, &r); err != nil {
		return killed
	}
	// For a call that the kernel kills for, it shows the call's number, and the process has not ended yet.
	if r.Rax == uint64(number) && number != unix.SYS_GETPID && in.call(unix.SYS_GETPID) == killed {
		return killed
	}
	return int64(r.Rax)
}

// Results of call if the process was killed, and if it runs another program.
const (
	killed   = -1 << 20
	replaced = 1 << 20
)

// argument returns the register value of an argument.
func (in *injected) argument(arg any) uint64 {
	var data []byte
	switch v := arg.(type) {
	case int:
		return uint64(v)
	case int64:
		return uint64(v)
	case string:
		data = append([]byte(v), 0)
	case []byte:
		data = v
	}
	at := in.scratch + in.used
	in.used += (uint64(len(data)) + 63) &^ 63
	_, _ = in.memory.WriteAt(data, int64(at))
	return at
}

// endChild ends the process or thread that a call created, before its first instruction.
func (in *injected) endChild() {
	tid, err := unix.PtraceGetEventMsg(in.pid)
	if err != nil {
		return
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(tid), &status, unix.WALL, nil); err != nil {
		return
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", in.pid, tid)); err != nil {
		_ = unix.Kill(int(tid), unix.SIGKILL)
		_, _ = unix.Wait4(int(tid), &status, unix.WALL, nil)
		return
	}
	r := in.regs
	r.Orig_rax, r.Rax, r.Rip, r.Rdi = ^uint64(0), unix.SYS_EXIT, in.syscall, 0
	_ = unix.PtraceSetRegs(int(tid), &r)
	_ = unix.PtraceDetach(int(tid))
}

// kill ends the process.
func (in *injected) kill() {
	_ = unix.Kill(in.pid, unix.SIGKILL)
	_, _ = unix.Wait4(in.pid, nil, unix.WALL, nil) // otherwise the zombie stays until this thread ends
	in.memory.Close()
}

// release lets the process continue where it was.
func (in *injected) release() error {
	in.call(unix.SYS_MUNMAP, int64(in.scratch), scratchSize)
	return errors.Join(unix.PtraceSetRegs(in.pid, &in.regs), unix.PtraceDetach(in.pid), in.memory.Close())
}
