package containerv1

import (
	"errors"
	"fmt"
)

// Container is the description of a container in this package's types; each field may be empty.
type Container struct {
	Root   Root
	Mounts []Mount
	Stdio  Stdio
}

// Check refuses unsupported descriptions by name. The engine, the sandbox and the agent all call it. The error
// matches ErrInvalid or errors.ErrUnsupported.
func Check(c Container) error {
	switch r := c.Root.(type) {
	case nil:
	case Image:
		if r.ID == "" {
			return fmt.Errorf("%w: an image without an id as the root", ErrInvalid)
		}
	case Share:
		if r.Name == "" {
			return fmt.Errorf("%w: no directory of the host as the root", ErrInvalid)
		}
	case Block:
		if r.Name == "" || r.FS == NoFS || r.Access != "" {
			return fmt.Errorf("%w: block device %.128q without a file system as the root", ErrInvalid, r.Name)
		}
		if r.FS != FSExt4 {
			return unsupported("file system %.32q of block device %.128q", string(r.FS), r.Name)
		}
	}
	for _, m := range c.Mounts {
		switch s := m.Source.(type) {
		case nil:
			return fmt.Errorf("%w: mount at %.128q has no source", ErrInvalid, m.Destination)
		case Dir, Files, Text, Termination, Image, System:
		case Share:
			if s.Name == "" || s.SetID {
				return fmt.Errorf("%w: mount at %.128q is of no directory of the host, or with set-user-id", ErrInvalid, m.Destination)
			}
		case Block:
			if err := s.check(m); err != nil {
				return err
			}
		}
	}
	switch s := c.Stdio.(type) {
	case nil, Stream, Discard, Descriptors:
	case Log:
		if s.File == "" {
			return fmt.Errorf("%w: a log without a file", ErrInvalid)
		}
	}
	return nil
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf(format+": %w yet", append(args, errors.ErrUnsupported)...)
}
