// Package dirs names the directories that Bulkhead keeps its files in, and the
// files that are installed beside its executables.
package dirs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Roots are the two directory trees of one user. Data survives a reboot, State
// does not need to.
type Roots struct {
	// Data holds images, templates and sandboxes.
	Data string
	// State holds sockets, locks, consoles and the state of running pods. Its
	// path is kept short: a unix socket's path is limited to 108 bytes.
	State string
}

// Default returns the roots of the calling user: system directories for root,
// the XDG directories otherwise. BULKHEAD_DATA and BULKHEAD_STATE override
// them. Nothing is created.
func Default() (Roots, error) {
	r := Roots{Data: os.Getenv("BULKHEAD_DATA"), State: os.Getenv("BULKHEAD_STATE")}
	if os.Geteuid() == 0 {
		return r.orElse("/var/lib/bulkhead", "/run/bulkhead"), nil
	}
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil && r.Data == "" {
			return Roots{}, fmt.Errorf("find the data directory: %w (set HOME or BULKHEAD_DATA)", err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	state := os.Getenv("XDG_RUNTIME_DIR")
	if state == "" {
		// As podman and systemd-less distributions do: a private directory
		// of the user in a world-writable one; Ensure refuses a stranger's.
		state = filepath.Join(os.TempDir(), "bulkhead-"+strconv.Itoa(os.Geteuid()))
		return r.orElse(filepath.Join(data, "bulkhead"), state), nil
	}
	return r.orElse(filepath.Join(data, "bulkhead"), filepath.Join(state, "bulkhead")), nil
}

func (r Roots) orElse(data, state string) Roots {
	if r.Data == "" {
		r.Data = data
	}
	if r.State == "" {
		r.State = state
	}
	return r
}

// Images is where image disks and their metadata lie.
func (r Roots) Images() string { return filepath.Join(r.Data, "images") }

// Templates is where VM templates lie, one directory a key.
func (r Roots) Templates() string { return filepath.Join(r.Data, "templates") }

// Sandboxes is where each sandbox keeps what must survive a reboot.
func (r Roots) Sandboxes() string { return filepath.Join(r.Data, "sandboxes") }

// Instance is the state directory of one engine instance ("run", "cri", …).
func (r Roots) Instance(name string) string { return filepath.Join(r.State, name) }
