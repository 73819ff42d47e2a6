package bootstrap

import (
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// Lost is the exit status of a process with an unknown end, as if it was killed.
const Lost = 128 + int(unix.SIGKILL)

// exitName is the file in a bundle with an Exit.
const exitName = "bulkhead-exit.json"

// Exit is a container's process and its end. At is zero while it runs.
type Exit struct {
	PID    int       `json:"pid"`
	Status int       `json:"status"`
	At     time.Time `json:"at"`
}

// RecordExit writes e into the directory of a bundle, for Delete after the front's death.
func RecordExit(bundle string, e Exit) error {
	return atomicfile.WriteJSON(filepath.Join(bundle, exitName), e, 0o600, atomicfile.Volatile)
}

// ReadExit returns the recorded end of a bundle's process. A process that was still running then has the status Lost.
func ReadExit(bundle string) Exit {
	var e Exit
	if err := atomicfile.ReadJSON(filepath.Join(bundle, exitName), &e); err != nil {
		e = Exit{}
	}
	if e.At.IsZero() {
		e.Status, e.At = Lost, time.Now()
	}
	return e
}
