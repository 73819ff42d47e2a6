package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/network"
)

// Instances are the names of this user's other instances.
func (e *Engine) Instances() ([]string, error) {
	all, err := store.Instances(e.o.Roots)
	var others []string
	for _, name := range all {
		if name != e.o.Instance {
			others = append(others, name)
		}
	}
	return others, err
}

// Record is what another instance has written of a pod: of what goes on inside it only
// its own engine knows.
type Record struct {
	ID      string
	Record  json.RawMessage // its door's
	Created time.Time
	Accel   string
	Phase   string // as the engine calls it
	// Starting and Ended tell whether it is not yet, or no more, a running pod.
	Starting, Ended bool
	IPs             []string
	Ports           []Port
}

// Records are those of another instance's pods. What cannot be read is in damaged, by
// its pod's id.
func (e *Engine) Records(instance string) (pods []Record, damaged map[string]error, err error) {
	st, err := store.Open(e.o.Roots, instance)
	if err != nil {
		return nil, nil, err
	}
	all, damaged, err := st.Pods()
	for _, r := range all {
		pods = append(pods, Record{
			ID: r.ID, Record: r.Record, Created: r.Created, Accel: string(r.Machine.Accel), Phase: string(r.Phase),
			Starting: r.Phase == store.Starting, Ended: r.Phase == store.Stopped || r.Phase == store.Removing,
			IPs: r.IPs, Ports: portsOf(r),
		})
	}
	return pods, damaged, err
}

// ReapInstance does for another instance what its own engine does when it starts.
// While that engine runs, which does so itself, the error matches flock.ErrLocked.
func (e *Engine) ReapInstance(ctx context.Context, instance string) (Reaped, error) {
	st, err := store.Open(e.o.Roots, instance)
	if err != nil {
		return Reaped{}, err
	}
	lock, err := flock.Try(st.LockPath())
	if err != nil {
		return Reaped{}, err
	}
	if err := lock.Unlock(); err != nil { // Open takes it
		return Reaped{}, err
	}
	other, err := Open(ctx, Options{
		Roots: e.o.Roots, Instance: instance, Guest: e.o.Guest, Shim: e.o.Shim, NoForks: true,
		Logger:    e.log.With("instance", instance),
		HostPaths: []string{"/"}, // what its records name was checked by its own engine
		// It starts no pod, and user networks keep nothing for a single one.
		Network: func(network.Kind) (network.Provider, error) { return network.None{}, nil },
	})
	if err != nil {
		return Reaped{}, fmt.Errorf("reap instance %s: %w", instance, err)
	}
	return other.Found(), other.Close(context.WithoutCancel(ctx))
}
