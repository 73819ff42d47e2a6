package oci

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// State is a container's state as runc prints it.
type State struct {
	OCIVersion  string               `json:"ociVersion"`
	ID          string               `json:"id"`
	Pid         int                  `json:"pid"`
	Status      specs.ContainerState `json:"status"`
	Bundle      string               `json:"bundle"`
	Rootfs      string               `json:"rootfs"`
	Created     time.Time            `json:"created"`
	Annotations map[string]string    `json:"annotations,omitempty"`
	Owner       string               `json:"owner"`
}

// State returns the state of a container.
func (d *Door) State(id string) (State, error) {
	r, err := d.read(id)
	if err != nil {
		return State{}, err
	}
	return r.state(), nil
}

func (r *record) state() State {
	s := State{
		OCIVersion: r.OCIVersion, ID: r.ID, Status: r.status(), Bundle: r.Bundle, Rootfs: r.Rootfs, Created: r.Created,
		Annotations: r.Annotations, Owner: "root",
	}
	if s.Status != specs.StateStopped {
		s.Pid = r.Surrogate.PID
	}
	return s
}

// List returns the states of all containers, by id. A directory without a readable record is left out.
func (d *Door) List() ([]State, error) {
	entries, err := os.ReadDir(d.o.Root)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []State
	for _, e := range entries {
		if !containerv1.ValidID(e.Name()) {
			continue
		}
		if s, err := d.State(e.Name()); err == nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b State) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// hookState is the state that hooks get on their stdin, in the form of the specification.
func (r *record) hookState(status specs.ContainerState) ([]byte, error) {
	return json.Marshal(specs.State{
		Version: r.OCIVersion, ID: r.ID, Status: status, Pid: r.Surrogate.PID, Bundle: r.Bundle, Annotations: r.Annotations,
	})
}
