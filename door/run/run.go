package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/door/run/socket"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/door/run/streams"
	"github.com/bulkhead-project/bulkhead/door/run/view"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// run starts the pods of a request and reports each start. In the foreground it stays until all pods have ended. If
// its client disconnects earlier, the pods are ended.
func (s *server) run(r *http.Request, out calls.Send) error {
	req, err := calls.Decode[api.RunRequest](r)
	if err != nil {
		return err
	}
	found, err := manifest.Read(req.Manifests, podapi.Options{IgnoreUnsupported: req.IgnoreUnsupported})
	if err != nil {
		return err
	}
	records, err := records(req, found)
	if err != nil {
		return err
	}
	for _, warning := range found.Warnings {
		if err := out(api.Message{Notice: warning}); err != nil {
			return err
		}
	}
	if err := sendChosenPorts(req, records, out); err != nil {
		return err
	}
	getenv, err := calls.Environment(r, s.ownEnvironment)
	if err != nil {
		return err
	}
	if !req.Detach {
		defer s.pods.TrackDetached(func() bool { return socket.Left(r.Context()) })()
	}
	entries, err := s.addAll(r.Context(), req, found, records, getenv, out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		e.Run()
	}
	tell, all := out, func() error { return nil }
	if req.Detach {
		// Pods that are abandoned because another pod did not start must not be reported.
		tell, all = holdStarted(out)
	}
	for _, e := range entries {
		if err := s.started(r.Context(), e, tell); err != nil {
			return errors.Join(err, s.abandon(entries))
		}
	}
	if req.Detach {
		for _, e := range entries {
			e.KeepTrying()
		}
		return all()
	}
	if err := s.sendOutput(r.Context(), entries, out); err != nil {
		return errors.Join(err, s.abandon(entries))
	}
	for _, e := range entries {
		if err := e.givenUp(); err != nil {
			return errors.Join(err, s.abandon(entries))
		}
	}
	if req.Remove {
		return s.abandon(entries)
	}
	return nil
}

// holdStarted returns a send function that holds back the messages of starts, and a function that sends the held
// messages.
func holdStarted(out calls.Send) (but calls.Send, all func() error) {
	var held []api.Message
	but = func(m api.Message) error {
		if m.Started == nil {
			return out(m)
		}
		held = append(held, m)
		return nil
	}
	return but, func() error {
		for _, m := range held {
			if err := out(m); err != nil {
				return err
			}
		}
		return nil
	}
}

// addAll adds all pods of a request or none, after creating their volumes.
func (s *server) addAll(
	ctx context.Context, req api.RunRequest, found *podapi.Documents, list []newPod, getenv image.Getenv, out calls.Send,
) (entries []*entry, err error) {
	made, done, err := s.volumes.Need(ctx, found.Pods, req.Volumes, found.Claims)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, name := range made {
		if err := out(api.Message{Notice: "volume " + name + " was created"}); err != nil {
			return nil, err
		}
	}
	for _, n := range list {
		p, err := s.pods.Add(n.Record, n.objects)
		if errors.Is(err, errdefs.ErrAlreadyExists) {
			err = fmt.Errorf("%w: remove it first (bulkhead rm -f %s)", err, n.Pod.Name)
		}
		if err != nil {
			for _, e := range entries { // these do not run yet
				err = errors.Join(err, s.pods.Discard(e.Pod))
			}
			return nil, err
		}
		e := entryOf(p)
		e.reads(getenv)
		entries = append(entries, e)
	}
	return entries, nil
}

// abandon removes the pods of a request that failed, lost its client, or asked for removal.
func (s *server) abandon(entries []*entry) error {
	var pods []*manager.Pod
	for _, e := range entries {
		pods = append(pods, e.Pod)
	}
	return s.pods.StopAndRemoveAll(pods)
}

// newPod is a pod of a request with the objects of its namespace.
type newPod struct {
	manager.Record
	objects manager.Objects
}

// records prepares the pods of a request.
func records(req api.RunRequest, found *podapi.Documents) ([]newPod, error) {
	var list []newPod
	if req.Deadline < 0 || req.Deadline > math.MaxInt32 {
		return nil, errclass.New(errdefs.ErrInvalidArgument, "deadline %d: must be 0 to %d seconds", req.Deadline, math.MaxInt32)
	}
	if req.HostLoopback {
		if req.Network != "" && req.Network != string(engine.NetworkUser) {
			return nil, errclass.New(errdefs.ErrInvalidArgument, "--allow-host-loopback needs --network user, not %s", req.Network)
		}
		req.Network = string(engine.NetworkHostLoopback)
	}
	all := manifest.Objects(found)
	for _, p := range found.Pods {
		p.UID = uuid.NewUUID()
		if own := p.Spec.ActiveDeadlineSeconds; req.Deadline > 0 && (own == nil || *own > req.Deadline) {
			p.Spec.ActiveDeadlineSeconds = &req.Deadline
		}
		p.CreationTimestamp = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		list = append(list, newPod{manager.Record{
			Pod: p, Network: req.Network, Template: req.Template, Warm: req.Warm, Accel: req.Accel, Size: runtimev1.Size(req.Size),
			Foreground: !req.Detach, Remove: req.Remove,
		}, all.Of(p.Namespace)})
	}
	if len(list) == 0 && len(found.Claims) == 0 {
		return nil, errclass.New(errdefs.ErrInvalidArgument,
			"no pod to run: ConfigMaps and Secrets are for the pods of the same command")
	}
	if len(req.Ports) > 0 && len(list) != 1 {
		return nil, errclass.New(errdefs.ErrInvalidArgument, "-p publishes ports of one pod, but there are %d pods", len(list))
	}
	ports, err := engine.ParsePorts(req.Ports)
	if err != nil {
		return nil, errclass.With(errdefs.ErrInvalidArgument, err)
	}
	for _, p := range ports {
		list[0].Ports = append(list[0].Ports, &runtimeapi.PortMapping{
			Protocol: runtimeapi.Protocol(runtimeapi.Protocol_value[strings.ToUpper(p.Protocol)]),
			HostIp:   p.HostIP, HostPort: int32(p.HostPort), ContainerPort: int32(p.PodPort),
		})
	}
	return list, nil
}

// started waits until the pod's start is under way, the pod waits for its turn, or the pod has ended. It passes on
// messages meanwhile, then reports the start.
func (s *server) started(ctx context.Context, e *entry, out calls.Send) error {
	if err := e.awaitStart(ctx, true, out); err != nil {
		return err
	}
	if err := e.Err(); err != nil {
		return err
	}
	return s.sendStarted(ctx, e, out)
}

// awaitStart waits until the pod's start is under way or the pod has ended, and passes on messages meanwhile. With
// queued, it also returns when the pod waits for its turn.
func (e *entry) awaitStart(ctx context.Context, queued bool, out calls.Send) error {
	for {
		status, changed := e.Watch()
		if err := relay(e, out); err != nil {
			return err
		}
		if e.HasEnded() || state.UnderWay(e.Original(), status) || queued && state.Queued(status) {
			return nil
		}
		select {
		case <-changed:
		case <-e.log.Wake():
		case <-e.Ended():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// givenUp returns why a pod with a followed start was given up.
func (e *entry) givenUp() error {
	err := e.Err()
	if errors.Is(err, pod.ErrImage) || errors.Is(err, pod.ErrStart) {
		return err
	}
	return nil
}

func relay(e *entry, out calls.Send) error {
	for _, m := range e.log.Drain() {
		if err := out(m); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) sendStarted(ctx context.Context, e *entry, out calls.Send) error {
	m := api.Started{Pod: view.Summary(e.Pod), Containers: refs.Containers(e.Original()), Interactive: streams.Interactive(e.Original())}
	if f, err := s.engine.Facts(ctx, e.Sandbox()); err == nil {
		m.VM = madeHow(f)
		for _, p := range f.Phases {
			m.Phases = append(m.Phases, api.Phase{Name: p.Name, Microseconds: p.Took.Microseconds()})
		}
		if f.NetNote != "" {
			if err := out(api.Message{Notice: "network: " + f.NetNote + " (bulkhead check shows the remedy)"}); err != nil {
				return err
			}
		}
	}
	return out(api.Message{Started: &m})
}

// sendChosenPorts reports the host ports that were chosen for ports without one.
func sendChosenPorts(req api.RunRequest, pods []newPod, out calls.Send) error {
	wanted, err := engine.ReadPorts(req.Ports)
	if err != nil {
		return errclass.With(errdefs.ErrInvalidArgument, err)
	}
	for i, w := range wanted {
		if w.HostPort != 0 {
			continue
		}
		chosen := pods[0].Ports[i]
		address := net.JoinHostPort(chosen.HostIp, strconv.Itoa(int(chosen.HostPort)))
		if w.Datagrams() {
			address += "/udp"
		}
		notice := fmt.Sprintf("port %d of the pod is published at %s", chosen.ContainerPort, address)
		if err := out(api.Message{Notice: notice}); err != nil {
			return err
		}
	}
	return nil
}

// madeHow says how a pod's VM was created, and why not in a faster way.
func madeHow(f *engine.Facts) string {
	switch {
	case f.Forked:
		return "forked"
	case f.Clone && f.ForkNote != "":
		return "cloned, not forked: " + f.ForkNote
	case f.Clone:
		return "cloned"
	}
	return "booted"
}
