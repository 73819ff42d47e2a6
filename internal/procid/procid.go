// Package procid names processes so that a name never means another process
// later: a pid alone is reused, and survives in files across a reboot.
package procid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrGone is returned for a process that has ended, or if its pid belongs to another one.
var ErrGone = errors.New("process is gone")

// ID names one process while the host runs. It is stored as JSON.
type ID struct {
	PID int `json:"pid"`
	// Start is field 22 of /proc/PID/stat: clock ticks after boot.
	Start uint64 `json:"start"`
	// Boot is /proc/sys/kernel/random/boot_id.
	Boot string `json:"boot"`
}

// BootID returns the identity of the host's running boot.
var BootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
})

// Of returns the identity of a process that is running now, or ErrGone.
func Of(pid int) (ID, error) {
	boot, err := BootID()
	if err != nil {
		return ID{}, err
	}
	start, err := startTime(pid)
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: start, Boot: boot}, nil
}

// Alive reports whether the process still runs. A zombie does not.
func (id ID) Alive() bool {
	now, err := Of(id.PID)
	return err == nil && id.PID > 0 && now == id
}

// Open returns a pidfd of the process as a file, which becomes readable when
// the process ends, or ErrGone. The caller closes it.
func (id ID) Open() (*os.File, error) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("open process %d: %w", id.PID, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", id.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(id.PID))
	// Only a comparison after the descriptor was opened proves the identity.
	if !id.Alive() {
		f.Close()
		return nil, fmt.Errorf("open process %d: %w", id.PID, ErrGone)
	}
	return f, nil
}

// Signal sends sig to exactly this process, or returns ErrGone.
func (id ID) Signal(sig unix.Signal) error {
	f, err := id.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.PidfdSendSignal(int(f.Fd()), sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// Args returns the arguments of exactly this process with its name, as the process itself presents them, or ErrGone. A
// dying process has none any more, and counts as gone.
func (id ID) Args() ([]string, error) {
	f, err := id.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	args := Args(id.PID)
	// If the process still lives, its pid was not reused meanwhile.
	if len(args) == 0 || !id.Alive() {
		return nil, fmt.Errorf("arguments of process %d: %w", id.PID, ErrGone)
	}
	return args, nil
}

// Stopped reports whether the process exists and is stopped, by SIGSTOP or by a debugger, until another process
// continues it.
func (id ID) Stopped() bool {
	fields, err := stat(id.PID)
	return err == nil && (fields[0] == "T" || fields[0] == "t") && id.Alive()
}

// Dying reports whether the process has started to end, or must: a pending kill counts. It is false for a process that
// has ended.
func (id ID) Dying() bool {
	fields, err := stat(id.PID)
	if err != nil {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	if err != nil || !id.Alive() {
		return false
	}
	return flags&exiting != 0 || killed(id.PID)
}

// exiting is PF_EXITING in the flags of /proc/PID/stat.
const exiting = 0x4

// killed reports whether SIGKILL is pending for the first thread of pid.
func killed(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

func startTime(pid int) (uint64, error) {
	fields, err := stat(pid)
	if err != nil || fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// stat returns /proc/PID/stat from its third field, the state, to at least the 22nd.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	// The command name, in parentheses, may contain anything, even ')'.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return fields, nil
}
