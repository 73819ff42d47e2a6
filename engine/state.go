package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/usage"
	"github.com/bulkhead-project/bulkhead/internal/hub"
	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// Pod is a snapshot of a pod. The caller owns all of it except Record, which must not be changed.
type Pod struct {
	ID, Key string
	Record  json.RawMessage
	Created time.Time
	// Ready reports that its VM runs and accepts containers.
	Ready bool
	IPs   []string
	Ports []Port // published
	// Containers are sorted by age, oldest first.
	Containers []Container
}

// State is the state of a container.
type State string

// The states of a container.
const (
	ContainerCreated State = "created"
	ContainerRunning State = "running"
	ContainerExited  State = "exited"
)

// Container is a snapshot of a container. Record must not be changed.
type Container struct {
	ID, PodID        string
	Key, Name        string
	Record           json.RawMessage
	ImageID          string
	State            State
	Created, Started time.Time
	Exit             *Exit // nil if it has not ended
	StopSignal       int
	Log              string      // path, empty for none
	User             *store.User // of its first process; nil if unknown
}

// ReasonCannotRun is the reason of an Exit if the command could not be started. The code is the shell's: 127 if the
// command does not exist, 126 if it cannot be executed.
const ReasonCannotRun = sandbox.ReasonCannotRun

// Exit describes how a container ended.
type Exit struct {
	Code            int
	Reason, Message string // printable; untrusted
	At              time.Time
}

// EventKind is the kind of an Event.
type EventKind int

// The events of pods and containers.
const (
	Created EventKind = iota
	Started
	Stopped
	Deleted
)

// Event reports a change of a container, or of the pod itself if ID is the pod's. Pod is its state at that time.
type Event struct {
	Kind EventKind
	ID   string
	At   time.Time
	Pod  Pod
}

// Subscribe returns a subscription to all events from now on. Up to backlog events are buffered. The caller must
// close it.
func (e *Engine) Subscribe(backlog int) (*hub.Subscription[Event], error) {
	sub, err := e.events.Subscribe(backlog)
	if err != nil {
		return nil, errClosed
	}
	return sub, nil
}

func (e *Engine) emit(kind EventKind, p *pod, id string) {
	e.events.Publish(func() Event { return Event{Kind: kind, ID: id, At: time.Now(), Pod: p.state()} })
}

// Pods returns all visible pods in no particular order.
func (e *Engine) Pods() []Pod {
	all := e.all()
	out := make([]Pod, 0, len(all))
	for _, p := range all {
		out = append(out, p.state())
	}
	return out
}

// Pod returns the pod by its id or a unique prefix of it.
func (e *Engine) Pod(id string) (Pod, error) {
	p, err := e.find(id)
	if err != nil {
		return Pod{}, err
	}
	return p.state(), nil
}

// Container returns the container by its id or a unique prefix of it.
func (e *Engine) Container(id string) (Container, error) {
	c, err := e.findContainer(id)
	if err != nil {
		return Container{}, err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.snapshot(), nil
}

// Running returns a running container, for its processes.
func (e *Engine) Running(id string) (process.Container, error) {
	c, err := e.findContainer(id)
	if err != nil {
		return process.Container{}, err
	}
	c.pod.mu.Lock()
	state := c.state()
	c.pod.mu.Unlock()
	if state != ContainerRunning {
		return process.Container{}, failure.New(errdefs.ErrFailedPrecondition, "container %s is %s, not running", c.Name, state)
	}
	shim, err := c.pod.shim()
	return process.Container{ID: c.ID, Name: c.Name, StateDir: e.store.StateDir(c.pod.id), Shim: shim, Log: e.log}, err
}

// Meter returns a meter of a pod.
func (e *Engine) Meter(id string) (usage.Meter, error) {
	p, err := e.find(id)
	if err != nil {
		return usage.Meter{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := usage.Meter{Record: p.record, Dir: e.store.Dir(p.id), Shim: p.conn, Paused: p.paused, Names: map[string]string{}}
	for id, c := range p.containers {
		m.Names[id] = c.Name
	}
	return m, nil
}

// SetContainerRecord replaces the door's record of a container.
func (e *Engine) SetContainerRecord(id string, record json.RawMessage) error {
	c, err := e.findContainer(id)
	if err != nil {
		return err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return failure.Wrap(c.store(func(r *store.Container) { r.Record = record }), "store container %s", shortid.Of(c.ID))
}

// state returns a snapshot of the pod and its containers.
func (p *pod) state() Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Pod{
		ID: p.id, Key: p.record.Key, Record: p.record.Record, Created: p.record.Created,
		Ready: p.ready(), IPs: slices.Clone(p.record.IPs), Ports: portsOf(&p.record),
		Containers: make([]Container, 0, len(p.containers)),
	}
	for _, c := range p.containers {
		out.Containers = append(out.Containers, c.snapshot())
	}
	slices.SortFunc(out.Containers, func(a, b Container) int { return a.Created.Compare(b.Created) })
	return out
}

// snapshot is called with the pod's mu held.
func (c *container) snapshot() Container {
	s := Container{
		ID: c.ID, PodID: c.pod.id, Key: c.Key, Name: c.Name, Record: c.Record, ImageID: c.ImageID,
		State: c.state(), Created: c.Created, Started: c.Started, StopSignal: c.StopSignal, Log: c.Log, User: c.User,
	}
	if x := c.Exit; x != nil {
		s.Exit = &Exit{Code: x.Code, Reason: x.Reason, Message: printable.Text(x.Message), At: x.At}
	}
	return s
}

// state is called with the pod's mu held.
func (c *container) state() State {
	switch {
	case c.Exit != nil:
		return ContainerExited
	case !c.Started.IsZero():
		return ContainerRunning
	}
	return ContainerCreated
}

// store changes the container's record and stores it. It is called with the pod's
// mu held.
func (c *container) store(change func(*store.Container)) error {
	next := c.Container
	change(&next)
	if err := c.pod.e.store.PutContainer(c.pod.id, &next); err != nil {
		return err
	}
	// The constant fields are read without the lock, so they must not be written here.
	c.Record, c.Started = next.Record, next.Started
	c.SetDemand(next.Demand())
	return nil
}
