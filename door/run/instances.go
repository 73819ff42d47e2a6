package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/network"
)

// others are this user's instances beside the engine's own.
func (s *server) others() ([]string, error) {
	all, err := store.Instances(s.roots)
	var others []string
	for _, name := range all {
		if name != client.Instance {
			others = append(others, name)
		}
	}
	return others, err
}

// foreign lists the pods of other instances, by their records: of what goes on
// inside them only their own engine knows.
func (s *server) foreign() ([]api.Pod, error) {
	names, err := s.others()
	if err != nil {
		return nil, err
	}
	var pods []api.Pod
	for _, name := range names {
		st, err := store.Open(s.roots, name)
		if err != nil {
			return nil, err
		}
		records, damaged, err := st.Pods()
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.Phase != store.Pooled {
				pods = append(pods, recorded(name, r))
			}
		}
		for id := range damaged {
			pods = append(pods, api.Pod{Instance: name, Sandbox: id, UID: id, Name: id[:12], Phase: "Unknown", Status: "Damaged"})
		}
	}
	return pods, nil
}

// recorded is a pod as its engine's record shows it.
func recorded(instance string, r *store.Pod) api.Pod {
	p := api.Pod{Instance: instance, Sandbox: r.ID, UID: r.ID, Name: r.ID[:12], Phase: "Running", Created: r.Created, Accel: string(r.Machine.Accel)}
	switch r.Phase {
	case store.Starting:
		p.Phase = "Pending"
	case store.Stopped, store.Removing:
		p.Phase = "Succeeded"
	}
	p.Status = string(r.Phase)
	var c runtimeapi.PodSandboxConfig
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.Config, &c) == nil && c.GetMetadata().GetName() != "" {
		p.Name, p.Namespace, p.UID, p.Labels = c.GetMetadata().GetName(), c.GetMetadata().GetNamespace(), c.GetMetadata().GetUid(), c.GetLabels()
	}
	if len(r.IPs) > 0 {
		p.IP = r.IPs[0]
	}
	for _, port := range r.Ports {
		p.Ports = append(p.Ports, fmt.Sprintf("%s:%d->%d", port.HostIP, port.HostPort, port.PodPort))
	}
	return p
}

func (s *server) reap(r *http.Request) (any, error) {
	if err := s.pods.Settle(r.Context()); err != nil {
		return nil, err
	}
	res, err := s.engine.Reap(r.Context())
	if err != nil {
		return nil, err
	}
	reaped := api.Reaped{Adopted: res.Adopted, Removed: res.Removed, Failed: res.Failed}
	// The first to ask is told what the start did, too: that is why it asked.
	s.found.Do(func() {
		first := s.engine.Found()
		reaped.Adopted += first.Adopted
		reaped.Removed += first.Removed
	})
	if r.URL.Query().Get("all") != "true" {
		return reaped, nil
	}
	names, err := s.others()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		res, err := s.reapInstance(r.Context(), name)
		if errors.Is(err, flock.ErrLocked) {
			reaped.Alive = append(reaped.Alive, name)
			continue
		}
		if err != nil {
			reaped.Failed = append(reaped.Failed, fmt.Sprintf("instance %s: %v", name, err))
		}
		reaped.Adopted += res.Adopted
		reaped.Removed += res.Removed
		for _, f := range res.Failed {
			reaped.Failed = append(reaped.Failed, "instance "+name+": "+f)
		}
	}
	return reaped, nil
}

// reapInstance does for another instance what its own engine does when it
// starts. While that engine runs, the error is flock.ErrLocked: it does so
// itself.
func (s *server) reapInstance(ctx context.Context, name string) (cri.Reaped, error) {
	st, err := store.Open(s.roots, name)
	if err != nil {
		return cri.Reaped{}, err
	}
	lock, err := flock.Try(st.LockPath())
	if err != nil {
		return cri.Reaped{}, err
	}
	if err := lock.Unlock(); err != nil { // cri.New takes it
		return cri.Reaped{}, err
	}
	images, err := image.Open(s.roots, name)
	if err != nil {
		return cri.Reaped{}, err
	}
	engine, err := cri.New(ctx, cri.Options{
		Roots: s.roots, Instance: name, Images: images, Guest: s.guest, Logger: s.log.With("instance", name), Pool: -1,
		HostPaths: []string{"/"}, // what its records name was checked by its own engine
		Network:   func(network.Kind) (network.Provider, error) { return leaver{}, nil },
	})
	if err != nil {
		return cri.Reaped{}, err
	}
	return engine.Found(), engine.Close(context.WithoutCancel(ctx))
}

// leaver is the network of an engine that starts no pod: user networks keep
// nothing for a single one.
type leaver struct{ network.None }
