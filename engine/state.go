package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/hub"
	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// Pod is a pod as it is at one moment. All of it is the caller's own but Record,
// which must not be changed.
type Pod struct {
	ID, Key string
	Record  json.RawMessage
	Created time.Time
	// Ready says that its VM runs and can be given containers.
	Ready bool
	IPs   []string
	Ports []Port // published
	// Containers are oldest first.
	Containers []Container
}

// State is how far a container has come.
type State string

// The states of a container.
const (
	ContainerCreated State = "created"
	ContainerRunning State = "running"
	ContainerExited  State = "exited"
)

// Container is a container as it is at one moment. Record must not be changed.
type Container struct {
	ID, PodID        string
	Key, Name        string
	Record           json.RawMessage
	ImageID          string
	State            State
	Created, Started time.Time
	Exit             *Exit // nil: it has not ended
	StopSignal       int
	Log              string      // path, empty for none
	User             *store.User // of its first process; nil while it is not known
}

// ReasonCannotRun is an Exit's of a container whose command could not be started. Its code
// is what a shell would give: 127 for a command that is not there, 126 for one that
// cannot be executed.
const ReasonCannotRun = sandbox.ReasonCannotRun

// Exit is how a container ended.
type Exit struct {
	Code            int
	Reason, Message string // printable; of hostile origin
	At              time.Time
}

// EventKind says what happened.
type EventKind int

// What happens to pods and containers.
const (
	Created EventKind = iota
	Started
	Stopped
	Deleted
)

// Event tells that something happened to a container, or to the pod itself when ID
// is its own. Pod is as it was then.
type Event struct {
	Kind EventKind
	ID   string
	At   time.Time
	Pod  Pod
}

// Subscribe tells of every event from now on, to a receiver that may be backlog
// events behind. The caller closes the subscription.
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

// Pods are all pods that may be seen, in no order.
func (e *Engine) Pods() []Pod {
	all := e.all()
	out := make([]Pod, 0, len(all))
	for _, p := range all {
		out = append(out, p.state())
	}
	return out
}

// Pod returns the pod that id, or an unambiguous prefix of one, names.
func (e *Engine) Pod(id string) (Pod, error) {
	p, err := e.find(id)
	if err != nil {
		return Pod{}, err
	}
	return p.state(), nil
}

// Container returns the container that id, or an unambiguous prefix of one, names.
func (e *Engine) Container(id string) (Container, error) {
	c, err := e.findContainer(id)
	if err != nil {
		return Container{}, err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.snapshot(), nil
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

// state is the pod's with its containers'.
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

// ready is called with mu held.
func (p *pod) ready() bool { return p.record.Phase == store.Ready && p.record.Exit == "" }

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
	// What never changes is read without the lock, and so not written.
	c.Record, c.Started = next.Record, next.Started
	c.SetDemand(next.Demand())
	return nil
}
