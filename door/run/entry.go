package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// entry is one pod with what this door adds to it.
type entry struct {
	*manager.Pod
	s   *server
	log *outbox // what its events told, for the run that follows it
	// unhealthy is what each container's probes said last; it belongs to Event.
	unhealthy map[string]string

	mu     sync.Mutex
	getenv image.Getenv // of the command that ran it last; nil: an earlier engine's
	// debuggers are the environments of the commands that added containers, by image.
	debuggers map[string]image.Getenv
}

func (s *server) newEntry(p *manager.Pod) manager.Door {
	return &entry{Pod: p, s: s, log: newOutbox(), unhealthy: map[string]string{}, debuggers: map[string]image.Getenv{}}
}

// entryOf is the entry that newEntry made.
func entryOf(p *manager.Pod) *entry { return p.Door().(*entry) }

// all are the pods, oldest first.
func (s *server) all() (list []*entry) {
	for _, p := range s.pods.All() {
		list = append(list, entryOf(p))
	}
	return list
}

// find names a pod to be looked at: a prefix of its name will do.
func (s *server) find(ref string) (*entry, error) { return found(s.pods.Find(ref)) }

// findExact names a pod to be changed.
func (s *server) findExact(ref string) (*entry, error) { return found(s.pods.FindExact(ref)) }

func found(p *manager.Pod, err error) (*entry, error) {
	if errors.Is(err, manager.ErrNotFound) {
		err = fmt.Errorf("%w: bulkhead ps lists the pods", err)
	}
	if err != nil {
		return nil, err
	}
	return entryOf(p), nil
}

// Configure implements manager.Door.
func (e *entry) Configure(o *pod.Options) error {
	vms := e.s.engine
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	o.Runtime = e.s.cri
	o.Images = puller{e.s.cri, e.images, e.log}
	o.Dial = vms.DialPort
	o.Pauses = vms.Pauses
	o.Resume = vms.ResumePod
	o.SeccompDir = e.s.roots.Seccomp()
	o.Places = e.s.places
	o.Allocatable = e.s.allocatable
	o.NodeName = node
	o.HostIP = "127.0.0.1"
	kind := o.Network
	o.DNS = func() *runtimeapi.DNSConfig {
		dns := engine.Resolver(kind)
		return &runtimeapi.DNSConfig{Servers: dns.Servers, Searches: dns.Searches, Options: dns.Options}
	}
	return nil
}

// allocatable is what a container has that sets no limit: the pod's machine.
func (s *server) allocatable(ctx context.Context, sandbox string) (corev1.ResourceList, error) {
	facts, err := s.engine.Facts(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(facts.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(facts.MemoryMiB<<20, resource.BinarySI),
	}, nil
}

// Release implements manager.Door: Configure takes nothing in.
func (e *entry) Release() {}

// Event implements manager.Door: who follows the run is told of warnings.
func (e *entry) Event(ev pod.Event) {
	if ev.Warning && ev.Reason != "BackOff" && !e.expected(ev) {
		e.log.put(api.Message{Notice: ev.Reason + ": " + ev.Message})
	}
}

// expected tells whether ev is what a container's probes said last as well, or what
// they say of one that is being ended.
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

// images is the image store as the command sees it that named the image: the one that
// ran the pod last, or that added a container of another image than the pod has.
func (e *entry) images(name string) *image.Store {
	getenv := e.environment(name)
	if getenv == nil {
		return e.s.images // an earlier engine's pod
	}
	return e.s.images.With(getenv)
}

func (e *entry) environment(name string) image.Getenv {
	e.mu.Lock()
	defer e.mu.Unlock()
	if own := slices.Contains(imageNames(e.Given()), name); own && e.getenv != nil || e.debuggers[name] == nil {
		return e.getenv
	}
	return e.debuggers[name]
}

// reads says in what environment the pod's images are pulled from now on.
func (e *entry) reads(getenv image.Getenv) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.getenv = getenv
}

// debugs says in what environment the image is pulled of a container that is added.
func (e *entry) debugs(name string, getenv image.Getenv) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.debuggers[name] = getenv
}

// environment is that of the command that made a request.
func (s *server) environment(r *http.Request) (image.Getenv, error) {
	texts := r.Header.Values(api.EnvironmentHeader)
	if len(texts) == 0 {
		return s.ownEnvironment.Get, nil
	}
	e, err := api.ParseEnvironment(texts[0])
	if err != nil {
		return nil, fmt.Errorf("%w environment", api.ErrInvalid) // which is not shown: passwords are in it
	}
	return e.Get, nil
}

// imagesFor is the image store as the command that made a request sees it, or as the instance sees it that the command means.
func (s *server) imagesFor(r *http.Request) (*image.Store, error) {
	getenv, err := s.environment(r)
	if err != nil {
		return nil, err
	}
	images := s.images.With(getenv)
	switch instance := r.URL.Query().Get("for"); {
	case instance == "":
		return images, nil
	case !slices.Contains(api.ImageUsers, instance):
		return nil, fmt.Errorf("%w: the user of images %.80q must be one of %s", api.ErrInvalid, instance, strings.Join(api.ImageUsers, ", "))
	default:
		return images.For(instance)
	}
}
