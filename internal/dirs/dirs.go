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

// Default returns the roots of the calling user for an instance: system directories
// for root, the XDG directories otherwise. BULKHEAD_DATA and BULKHEAD_STATE override
// them.
//
// A user's sessions differ in their environment (ssh, su, cron). Where nobody names
// the state directory it is therefore the one that the instance's engine works in, or
// has left pods in.
func Default(instance string) (Roots, error) {
	var r Roots
	for name, dir := range map[string]*string{"BULKHEAD_DATA": &r.Data, "BULKHEAD_STATE": &r.State} {
		var err error
		if *dir = os.Getenv(name); *dir != "" {
			*dir, err = filepath.Abs(*dir) // the engine works elsewhere
		}
		if err != nil {
			return Roots{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if os.Geteuid() == 0 {
		return r.orElse("/var/lib/bulkhead", "/run/bulkhead"), nil
	}
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) { // as the specification asks
		home, err := os.UserHomeDir()
		if err != nil && r.Data == "" {
			return Roots{}, fmt.Errorf("find the data directory: %w (set HOME or BULKHEAD_DATA)", err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	named := r.State != ""
	r = r.orElse(filepath.Join(data, "bulkhead"), userState(ownRuntime(os.Getenv("XDG_RUNTIME_DIR")), os.TempDir(), os.Geteuid()))
	if named {
		return r, nil
	}
	return r.settled(instance), nil
}

// ownRuntime is the runtime directory if it is there and the caller's: su leaves its
// user that of another one.
func ownRuntime(dir string) string {
	if _, err := placeOf(dir); err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}

// MaxState bounds the path of State, in bytes: a pod's sockets lie below it
// under an instance's name of three letters and an id of 64 digits, and a unix
// socket's whole path in 108.
const MaxState = 23

// userState is the state directory of an ordinary user. Without a runtime
// directory, or with one whose path is too long (that of a user with a long
// number is), it is as podman does it a private directory of the user in a
// world-writable one; Ensure refuses a stranger's.
func userState(runtime, tmp string, uid int) string {
	if dir := filepath.Join(runtime, "bulkhead"); runtime != "" && len(dir) <= MaxState {
		return dir
	}
	number := strconv.Itoa(uid)
	if dir := filepath.Join(tmp, "bulkhead-"+number); filepath.IsAbs(dir) && len(dir) <= MaxState {
		return dir
	}
	return filepath.Join("/tmp", "bh-"+number)
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

// Seccomp is where the user keeps the seccomp profiles that pods name (type
// Localhost). Nobody makes it but the user.
func (r Roots) Seccomp() string { return filepath.Join(r.Data, "seccomp") }

// The instances of an engine, one a door.
const (
	Run  = "run"
	CRI  = "cri"
	Node = "node"
)

// Instance is the state directory of one engine instance ("run", "cri", …).
func (r Roots) Instance(name string) string { return filepath.Join(r.State, name) }
