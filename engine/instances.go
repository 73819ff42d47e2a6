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

// Instances returns the names of this user's other instances.
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

// Record is the record of a pod of another instance. Only that instance's engine knows the pod's containers.
type Record struct {
	ID      string
	Record  json.RawMessage // its door's
	Created time.Time
	Accel   string
	Phase   string // the engine's name for it
	// Starting and Ended report whether the pod is not yet, or no longer, running.
	Starting, Ended bool
	IPs             []string
	Ports           []Port
}

// Records returns the records of another instance's pods. damaged has the errors of unreadable records by pod id.
func (e *Engine) Records(instance string) (pods []Record, damaged map[string]error, err error) {
	st, err := store.Open(e.o.Roots, instance)
	if err != nil {
		return nil, nil, err
	}
	all, damaged, err := st.Pods()
	for _, r := range all {
		pods = append(pods, Record{
			ID: r.ID, Record: r.Record, Created: r.Created, Accel: string(r.VM.Accel), Phase: string(r.Phase),
			Starting: r.Phase == store.Starting, Ended: r.Phase == store.Stopped || r.Phase == store.Removing,
			IPs: r.IPs, Ports: portsOf(r),
		})
	}
	return pods, damaged, err
}

// ReapInstance reaps for another instance, as its engine does at its start. While that engine runs, the error
// matches flock.ErrLocked.
func (e *Engine) ReapInstance(ctx context.Context, instance string) (Reaped, error) {
	st, err := store.Open(e.o.Roots, instance)
	if err != nil {
		return Reaped{}, err
	}
	lock, err := flock.Try(st.LockPath())
	if err != nil {
		return Reaped{}, err
	}
	if err := lock.Unlock(); err != nil { // Open locks it again
		return Reaped{}, err
	}
	other, err := Open(ctx, Options{
		Roots: e.o.Roots, Instance: instance, Guest: e.o.Guest, Shim: e.o.Shim, NoForks: true,
		Logger:    e.log.With("instance", instance),
		HostPaths: []string{"/"}, // its own engine has checked the paths in its records
		// It starts no pod, so no user network is needed.
		Network: func(network.Kind) (network.Provider, error) { return network.None{}, nil },
	})
	if err != nil {
		return Reaped{}, fmt.Errorf("reap instance %s: %w", instance, err)
	}
	return other.Found(), other.Close(context.WithoutCancel(ctx))
}
