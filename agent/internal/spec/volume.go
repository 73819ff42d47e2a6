package spec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// described returns the mounts that the agent resolves, by index. The others are the kernel's own file systems.
func described(mounts []Mount) (map[int]containerv1.Mount, error) {
	ours := map[int]containerv1.Mount{}
	for i, mount := range mounts {
		m, err := containerv1.ParseMount(mount.Destination, mount.Type, mount.Source, mount.Options)
		if err == nil {
			err = containerv1.Check(containerv1.Container{Mounts: []containerv1.Mount{m}})
		}
		if err != nil {
			return nil, Refused(err)
		}
		if _, system := m.Source.(containerv1.System); !system {
			ours[i] = m
		}
	}
	return ours, nil
}

// Refused adds to an error of containerv1 the class that crosses the channel.
func Refused(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: %w", errdefs.ErrNotImplemented, err)
	}
	return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
}

// resolve converts a mount of containerv1 to a bind mount.
func (s *Spec) resolve(m VM, mount *Mount, of containerv1.Mount, at string) error {
	switch source := of.Source.(type) {
	case containerv1.Text:
		if m.File == nil {
			return fmt.Errorf("file at %.128q: %w", at, errdefs.ErrNotImplemented)
		}
		from, err := m.File(at, source.Content)
		if err != nil {
			return fmt.Errorf("file at %.128q: %w", at, err)
		}
		mount.Type, mount.Source, mount.door = "bind", from, true
	case containerv1.Termination:
		*mount, s.LastAt = Mount{Destination: at, Type: "bind", Source: m.Last, Options: []string{"bind", "rw"}}, at
	default:
		from, err := m.Volume(of)
		if err != nil {
			return fmt.Errorf("volume at %.128q: %w", at, err)
		}
		bound := func(option string) bool { return option == "bind" || option == "rbind" }
		mount.Type, mount.Source = "bind", from
		mount.Options = append([]string{"rbind"}, slices.DeleteFunc(of.Options, bound)...)
	}
	return nil
}
