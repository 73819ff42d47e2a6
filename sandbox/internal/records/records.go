// Package records stores the state of a sandbox and of its containers. The files are listed in the documentation of
// package sandbox.
package records

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

// Version is the version of the files that only this package writes.
const Version = 1

// State is the state of a sandbox, a container or a process.
type State string

// The states: Ready → Running ⇄ Paused, any of them → Stopped. A stopped sandbox can start again, a stopped container
// cannot.
const (
	Ready   State = "ready"
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped"
)

// Valid reports whether s is one of the four states. Stored states are checked with it.
func (s State) Valid() bool {
	return s == Ready || s == Running || s == Paused || s == Stopped
}

// Phase is one step of the start, with its duration.
type Phase struct {
	Name         string `json:"name"`
	Microseconds int64  `json:"microseconds"`
}

// Exit describes how a process ended.
type Exit struct {
	// Code is 0 to 255: 128+n for signal n, 126 for a command that cannot be executed, 127 for a missing one, 137 if
	// the VM ended first.
	Code    int       `json:"code"`
	Signal  int       `json:"signal,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Sandbox is the content of state.json.
type Sandbox struct {
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

// Why formats the exit for users.
func (s Sandbox) Why() string {
	if s.ExitMessage == "" {
		return s.ExitReason
	}
	return s.ExitReason + ": " + s.ExitMessage
}

// Container is a container's state.json: its own process and its exec'd processes.
type Container struct {
	Version   int       `json:"version"`
	Processes []Process `json:"processes"`
}

// Process is the record of a process. Exec is empty for the own process of a container.
type Process struct {
	Exec     string `json:"exec,omitempty"`
	State    State  `json:"state"`
	PID      int    `json:"pid,omitempty"`
	Terminal bool   `json:"terminal,omitempty"`
	StdioRecord
	Exit      *Exit     `json:"exit,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Leased means that the process must not outlive its process of the host (AttachFiles).
	Leased bool `json:"leased,omitempty"`

	User *agentv1.User `json:"user,omitempty"`
	// OOMKills counts the kills that were reported.
	OOMKills uint64 `json:"oomKills,omitempty"`
}

// Volume is an image or a block device that a container has beside its root.
type Volume struct {
	// ID is the image's id, or the block device's name in the VM.
	ID string `json:"id"`
}

// ContainerConfig is a container's config.json: the stored part of its ContainerConfig.
type ContainerConfig struct {
	ID string `json:"id"`
	containerv1.RootRecord
	// ImageID replaces the root in records of earlier versions.
	ImageID  string   `json:"imageID,omitempty"`
	Volumes  []Volume `json:"volumes,omitempty"`
	Terminal bool     `json:"terminal,omitempty"`
	StdioRecord
}

// Disks returns the ids of the container's disks, its root's first.
func (c *ContainerConfig) Disks() (ids []string) {
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

// StdioRecord is the stored form of a Stdio. It omits the file of a log, because each shim receives that file again.
type StdioRecord struct {
	Stdin     bool   `json:"stdin,omitempty"`
	StdinOnce bool   `json:"stdinOnce,omitempty"`
	Output    string `json:"output"` // log, stream, discard or host
}

// StdioOf returns the stored form of s.
func StdioOf(s containerv1.Stdio) StdioRecord {
	r := StdioRecord{Stdin: s.Input() != containerv1.NoStdin, StdinOnce: s.Input() == containerv1.StdinOnce}
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

// Stdio is the inverse of StdioOf.
func (r StdioRecord) Stdio() containerv1.Stdio {
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

// Store is the sandbox's directory. Each write holds the lock. Its methods are safe for concurrent use.
type Store struct {
	Dir string

	mu      sync.Mutex
	stopped bool
}

// Stop lets the store write nothing more.
func (d *Store) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
}

// Path returns the path of a file of the sandbox.
func (d *Store) Path(name ...string) string {
	return filepath.Join(append([]string{d.Dir}, name...)...)
}

// Container returns the path of a file of a container.
func (d *Store) Container(id string, name ...string) string {
	return d.Path(append([]string{"containers", id}, name...)...)
}

// lockTimeout bounds the wait for the lock.
const lockTimeout = 10 * time.Second

// Locked runs f under the sandbox's lock, unless the store was stopped.
func (d *Store) Locked(f func() error) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	l, err := flock.Acquire(ctx, d.Path("lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock()) }()
	return f()
}

// Write replaces a file by v in JSON.
func (d *Store) Write(path string, v any) error {
	return d.Locked(func() error { return atomicfile.WriteJSON(path, v, 0o600, atomicfile.Volatile) })
}

// ReadSandbox reads state.json of the sandbox.
func (d *Store) ReadSandbox() (s Sandbox, err error) {
	path := d.Path("state.json")
	if err = atomicfile.ReadJSON(path, &s); err != nil {
		return s, err
	}
	if s.Version != Version {
		return s, Corrupt(path, "version %d is not %d", s.Version, Version)
	}
	if !s.State.Valid() {
		return s, Corrupt(path, "unknown state %q", s.State)
	}
	return s, nil
}

// ReadContainer reads both files of a container.
func (d *Store) ReadContainer(id string) (c ContainerConfig, s Container, err error) {
	if err = atomicfile.ReadJSON(d.Container(id, "config.json"), &c); err != nil {
		return c, s, err
	}
	path := d.Container(id, "state.json")
	if err = atomicfile.ReadJSON(path, &s); err != nil {
		return c, s, err
	}
	switch {
	case c.ID != id:
		err = Corrupt(d.Container(id, "config.json"), "it belongs to container %q", c.ID)
	case s.Version != Version:
		err = Corrupt(path, "version %d is not %d", s.Version, Version)
	case len(s.Processes) == 0 || s.Processes[0].Exec != "":
		err = Corrupt(path, "it lacks the container's own process")
	}
	for _, p := range s.Processes {
		if err == nil && (!p.State.Valid() || p.State == Stopped && p.Exit == nil) {
			err = Corrupt(path, "process %q in state %q", p.Exec, p.State)
		}
	}
	return c, s, err
}

// Containers returns the ids of the stored containers.
func (d *Store) Containers() ([]string, error) {
	entries, err := os.ReadDir(d.Path("containers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		// A container without a state was not fully created and does not exist in the guest.
		if _, err := os.Stat(d.Container(e.Name(), "state.json")); err == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// Remove deletes all files of the sandbox but its directory. It stops the store.
func (d *Store) Remove() error {
	d.Stop()
	var errs []error
	for _, name := range []string{"containers", "config.json", "state.json", "lock"} {
		errs = append(errs, os.RemoveAll(d.Path(name)))
	}
	return errors.Join(errs...)
}

// Corrupt returns the error of a file that must not count as a state.
func Corrupt(path, format string, args ...any) error {
	return fmt.Errorf("read %s: %w: %s", path, atomicfile.ErrCorrupt, fmt.Sprintf(format, args...))
}
