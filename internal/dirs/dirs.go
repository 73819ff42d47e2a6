// Package dirs defines the directories of Bulkhead's files, and finds the files that are installed beside its
// executables.
package dirs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// Roots are the two directory trees of one user. Data must survive a reboot, State need not.
type Roots struct {
	// Data holds images, templates and sandboxes.
	Data string
	// State holds sockets, locks, consoles and the state of running pods. Its path is short, because unix sockets'
	// paths are limited to 108 bytes.
	State string
}

// Default returns the roots of the calling user for an instance: system directories for root, the XDG directories
// otherwise. BULKHEAD_DATA and BULKHEAD_STATE override them.
//
// A user's sessions differ in their environment (ssh, su, cron). So unless the state directory is set, Default returns
// the one where the instance's engine runs or has left pods.
func Default(instance string) (Roots, error) {
	var r Roots
	for name, dir := range map[string]*string{"BULKHEAD_DATA": &r.Data, "BULKHEAD_STATE": &r.State} {
		var err error
		if *dir = os.Getenv(name); *dir != "" {
			*dir, err = filepath.Abs(*dir) // the engine has another working directory
		}
		if err != nil {
			return Roots{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if userns.HostRoot() {
		return r.withDefaults("/var/lib/bulkhead", "/run/bulkhead"), nil
	}
	if uid, inner := userns.Inner(); inner {
		return r.inner(uid)
	}
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) { // required by the specification
		home, err := os.UserHomeDir()
		if err != nil && r.Data == "" {
			return Roots{}, fmt.Errorf("find the data directory: %w (set HOME or BULKHEAD_DATA)", err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	named := r.State != ""
	state := userState(ownRuntime(os.Getenv("XDG_RUNTIME_DIR")), os.TempDir(), os.Geteuid(), "bulkhead", "bh")
	r = r.withDefaults(filepath.Join(data, "bulkhead"), state)
	if named {
		return r, nil
	}
	return r.withLastState(instance), nil
}

// ownRuntime returns the runtime directory if it exists and belongs to the caller: su keeps the variable of another
// user.
func ownRuntime(dir string) string {
	if _, err := placeOf(dir); err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}

// MaxState bounds the path of State, in bytes. A pod's sockets lie below it, under an instance's name of three letters
// and an id of 64 digits. A socket's whole path must stay within 108 bytes.
const MaxState = 23

// userState returns the state directory of an ordinary user. Without a usable runtime directory it is a private
// directory of the user in a world-writable one, as in podman; Ensure refuses another user's. The path of a runtime
// directory may be too long, for users with a long number.
func userState(runtime, tmp string, uid int, name, short string) string {
	if dir := filepath.Join(runtime, name); runtime != "" && len(dir) <= MaxState {
		return dir
	}
	number := strconv.Itoa(uid)
	if dir := filepath.Join(tmp, name+"-"+number); filepath.IsAbs(dir) && len(dir) <= MaxState {
		return dir
	}
	return filepath.Join("/tmp", short+"-"+number)
}

func (r Roots) withDefaults(data, state string) Roots {
	if r.Data == "" {
		r.Data = data
	}
	if r.State == "" {
		r.State = state
	}
	return r
}

// Images is the directory of image disks and their metadata.
func (r Roots) Images() string { return filepath.Join(r.Data, "images") }

// Templates is the directory of VM templates, with one directory per key.
func (r Roots) Templates() string { return filepath.Join(r.Data, "templates") }

// Sandboxes is the directory of the sandboxes' files that must survive a reboot.
func (r Roots) Sandboxes() string { return filepath.Join(r.Data, "sandboxes") }

// Seccomp is the directory of the seccomp profiles that pods name (type Localhost). Only the user creates it.
func (r Roots) Seccomp() string { return filepath.Join(r.Data, "seccomp") }

// The instances of an engine, one per door.
const (
	Run  = "run"
	CRI  = "cri"
	Node = "node"
)

// Instance is the state directory of one engine instance ("run", "cri", …).
func (r Roots) Instance(name string) string { return filepath.Join(r.State, name) }
