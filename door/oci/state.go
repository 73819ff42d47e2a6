package oci

import (
	"encoding/json"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
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
		Annotations: r.Annotations,
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
		if checkID(e.Name()) != nil {
			continue
		}
		if s, err := d.State(e.Name()); err == nil {
			s.Owner = ownerOf(e)
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b State) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// ownerOf returns the name of a directory's user.
func ownerOf(e os.DirEntry) string {
	info, err := e.Info()
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	uid := strconv.Itoa(int(st.Uid))
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}

// hookState is the state that hooks get on their stdin, in the form of the specification.
func (r *record) hookState(status specs.ContainerState) ([]byte, error) {
	pid := r.Surrogate.PID
	if status == specs.StateStopped {
		pid = 0
	}
	return json.Marshal(specs.State{
		Version: r.OCIVersion, ID: r.ID, Status: status, Pid: pid, Bundle: r.Bundle, Annotations: r.Annotations,
	})
}
