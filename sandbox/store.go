package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/devices"
)

// stateVersion is the version of the files that only this package writes.
const stateVersion = 1

// sandboxState is the content of state.json.
type sandboxState struct {
	Version int       `json:"version"`
	Owner   procid.ID `json:"owner"` // the shim
	State   State     `json:"state"`
	// Starting is set during Start. If a shim dies then, the next one kills the half-configured VM instead of adopting
	// it.
	Starting bool               `json:"starting,omitempty"`
	VM       *hypervisor.Record `json:"vm,omitempty"`
	devices.Record
	Guest       agentv1.Configured `json:"guest"`
	Phases      []Phase            `json:"phases,omitempty"`
	ExitReason  string             `json:"exitReason,omitempty"`
	ExitMessage string             `json:"exitMessage,omitempty"`
	StartedAt   time.Time          `json:"startedAt,omitzero"`
	StoppedAt   time.Time          `json:"stoppedAt,omitzero"`
}

// containerState is a container's state.json: its own process and its exec'd processes.
type containerState struct {
	Version   int            `json:"version"`
	Processes []processState `json:"processes"`
}

type processState struct {
	Exec     string `json:"exec,omitempty"`
	State    State  `json:"state"`
	PID      int    `json:"pid,omitempty"`
	Terminal bool   `json:"terminal,omitempty"`
	stdioRecord
	Exit      *Exit     `json:"exit,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Leased means that the process must not outlive its process of the host (AttachFiles).
	Leased bool `json:"leased,omitempty"`

	User *agentv1.User `json:"user,omitempty"`
	// OOMKills counts the kills that were reported.
	OOMKills uint64 `json:"oomKills,omitempty"`
}

// containerRecord is a container's config.json: the stored part of its ContainerConfig.
type containerRecord struct {
	ID string `json:"id"`
	containerv1.RootRecord
	// ImageID replaces the root in records of earlier versions.
	ImageID  string   `json:"imageID,omitempty"`
	Volumes  []Volume `json:"volumes,omitempty"`
	Terminal bool     `json:"terminal,omitempty"`
	stdioRecord
}

func (c *ContainerConfig) record() containerRecord {
	return containerRecord{
		ID: c.ID, RootRecord: containerv1.RecordOf(c.Root), Volumes: c.Volumes, Terminal: c.Terminal,
		stdioRecord: recordOf(c.Stdio),
	}
}

// disks returns the ids of the container's disks, its root's first.
func (c *containerRecord) disks() (ids []string) {
	for _, id := range []string{c.Image, c.ImageID, c.Block} {
		if id != "" {
			ids = append(ids, id)
		}
	}
	for _, v := range c.Volumes {
		if v.ID != agentv1.RingDisk { // no container holds the ring
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// stdioRecord is the stored form of a Stdio. It omits the file of a log, because each shim receives that file again.
type stdioRecord struct {
	Stdin     bool   `json:"stdin,omitempty"`
	StdinOnce bool   `json:"stdinOnce,omitempty"`
	Output    string `json:"output"` // log, stream, discard or host
}

func recordOf(s containerv1.Stdio) stdioRecord {
	r := stdioRecord{Stdin: s.Input() != containerv1.NoStdin, StdinOnce: s.Input() == containerv1.StdinOnce}
	switch s.(type) {
	case containerv1.Log:
		r.Output = "log"
	case containerv1.Stream:
		r.Output = "stream"
	case containerv1.Discard:
		r.Output = "discard"
	case containerv1.Descriptors:
		r.Output = "host"
	}
	return r
}

// stdio is the inverse of recordOf.
func (r stdioRecord) stdio() containerv1.Stdio {
	in := containerv1.NoStdin
	switch {
	case r.StdinOnce:
		in = containerv1.StdinOnce
	case r.Stdin:
		in = containerv1.OpenStdin
	}
	switch r.Output {
	case "log":
		return containerv1.Log{Stdin: in}
	case "stream":
		return containerv1.Stream{Stdin: in}
	case "host":
		return containerv1.Descriptors{Stdin: r.Stdin}
	default:
		return containerv1.Discard{Stdin: in}
	}
}

// store is the sandbox's directory. Each write holds the lock. After remove, nothing is written any more. Its methods are
// safe for concurrent use.
type store struct {
	dir string

	mu      sync.Mutex
	removed bool
}

func (d *store) path(name ...string) string {
	return filepath.Join(append([]string{d.dir}, name...)...)
}

func (d *store) container(id string, name ...string) string {
	return d.path(append([]string{"containers", id}, name...)...)
}

// locked runs f under the sandbox's lock, unless the files were removed.
func (d *store) locked(f func() error) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	l, err := flock.Acquire(ctx, d.path("lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock()) }()
	return f()
}

func (d *store) write(path string, v any) error {
	return d.locked(func() error { return atomicfile.WriteJSON(path, v, 0o600, atomicfile.Volatile) })
}

func (d *store) readState() (s sandboxState, err error) {
	path := d.path("state.json")
	if err = atomicfile.ReadJSON(path, &s); err != nil {
		return s, err
	}
	if s.Version != stateVersion {
		return s, corrupt(path, "version %d is not %d", s.Version, stateVersion)
	}
	if !s.State.Valid() {
		return s, corrupt(path, "unknown state %q", s.State)
	}
	return s, nil
}

func (d *store) readConfig() (c Config, err error) {
	path := d.path("config.json")
	if err = atomicfile.ReadJSON(path, &c); err == nil && c.Version != ConfigVersion {
		err = corrupt(path, "version %d is not %d", c.Version, ConfigVersion)
	}
	return c, err
}

// readContainer reads both files of a container.
func (d *store) readContainer(id string) (c containerRecord, s containerState, err error) {
	if err = atomicfile.ReadJSON(d.container(id, "config.json"), &c); err != nil {
		return c, s, err
	}
	path := d.container(id, "state.json")
	if err = atomicfile.ReadJSON(path, &s); err != nil {
		return c, s, err
	}
	switch {
	case c.ID != id:
		err = corrupt(d.container(id, "config.json"), "it belongs to container %q", c.ID)
	case s.Version != stateVersion:
		err = corrupt(path, "version %d is not %d", s.Version, stateVersion)
	case len(s.Processes) == 0 || s.Processes[0].Exec != "":
		err = corrupt(path, "it lacks the container's own process")
	}
	for _, p := range s.Processes {
		if err == nil && (!p.State.Valid() || p.State == Stopped && p.Exit == nil) {
			err = corrupt(path, "process %q in state %q", p.Exec, p.State)
		}
	}
	return c, s, err
}

// containers returns the ids of the stored containers.
func (d *store) containers() ([]string, error) {
	entries, err := os.ReadDir(d.path("containers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		// A container without a state was not fully created and does not exist in the guest.
		if _, err := os.Stat(d.container(e.Name(), "state.json")); err == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// remove deletes all files of the sandbox but its directory.
func (d *store) remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removed = true
	var errs []error
	for _, name := range []string{"containers", "config.json", "state.json", "lock"} {
		errs = append(errs, os.RemoveAll(d.path(name)))
	}
	return errors.Join(errs...)
}

func corrupt(path, format string, args ...any) error {
	return fmt.Errorf("read %s: %w: %s", path, atomicfile.ErrCorrupt, fmt.Sprintf(format, args...))
}
