package run

import (
	"fmt"
	"os"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/images"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// entry is a pod with the additional state of this door.
type entry struct {
	*manager.Pod
	s   *server
	log *calls.Outbox // messages of its events, for the run that follows it
	// unhealthy has the last message of each container's probes. Only Event uses it.
	unhealthy map[string]string

	mu     sync.Mutex
	getenv image.Getenv // of the command that last ran it; nil: an earlier engine's pod
	// debuggers has the environments of the commands that added containers, by image.
	debuggers map[string]image.Getenv
}

func (s *server) newEntry(p *manager.Pod) manager.Door {
	return &entry{Pod: p, s: s, log: calls.NewOutbox(), unhealthy: map[string]string{}, debuggers: map[string]image.Getenv{}}
}

// entryOf returns the entry that newEntry created.
func entryOf(p *manager.Pod) *entry { return p.Door().(*entry) }

// Configure implements manager.Door.
func (e *entry) Configure(o *pod.Options) error {
	vms := e.s.engine
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	o.Runtime = e.s.cri
	o.Images = images.Puller{ImageManagerService: e.s.cri, Store: e.images, Add: e.log.Add}
	o.Dial = vms.DialPort
	o.Pauses = vms.Pauses
	o.Resume = vms.ResumePod
	o.SeccompDir = e.s.roots.Seccomp()
	o.Places = e.s.places
	o.Allocatable = e.s.cri.Allocatable
	o.NodeName = node
	o.HostIP = "127.0.0.1"
	kind := o.Network
	o.DNS = func() *runtimeapi.DNSConfig {
		dns := engine.Resolver(kind)
		return &runtimeapi.DNSConfig{Servers: dns.Servers, Searches: dns.Searches, Options: dns.Options}
	}
	return nil
}

// Release implements manager.Door. Configure acquires nothing that must be released.
func (e *entry) Release() {}

// Event implements manager.Door. It passes warnings on to the client that follows the run.
func (e *entry) Event(ev pod.Event) {
	if ev.Warning && ev.Reason != "BackOff" && !e.expected(ev) {
		e.log.Add(api.Message{Notice: ev.Reason + ": " + ev.Message})
	}
}

// expected reports whether ev repeats the last message of a container's probes, or comes from the probes of a pod
// that is being stopped.
func (e *entry) expected(ev pod.Event) bool {
	if ev.Reason != "Unhealthy" && ev.Reason != "ProbeWarning" {
		return false
	}
	if e.Ending() {
		return true
	}
	last := e.unhealthy[ev.Container]
	e.unhealthy[ev.Container] = ev.Message
	return last == ev.Message
}

// images returns the image store in the environment of the command that named the image: the command that last ran
// the pod, or the one that added a container of another image.
func (e *entry) images(name string) *image.Store {
	getenv := e.environment(name)
	if getenv == nil {
		return e.s.images // a pod of an earlier engine
	}
	return e.s.images.With(getenv)
}

func (e *entry) environment(name string) image.Getenv {
	e.mu.Lock()
	defer e.mu.Unlock()
	if own := slices.Contains(images.Names(e.Original()), name); own && e.getenv != nil || e.debuggers[name] == nil {
		return e.getenv
	}
	return e.debuggers[name]
}

// reads sets the environment for later pulls of the pod's images.
func (e *entry) reads(getenv image.Getenv) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.getenv = getenv
}

// debugs sets the environment for pulls of an added container's image.
func (e *entry) debugs(name string, getenv image.Getenv) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.debuggers[name] = getenv
}
