package shares

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

// usersOf returns the mappings of a process's user namespace.
func usersOf(id procid.ID) (userns.Mappings, error) {
	m, err := userns.Of(id.PID)
	if err == nil && !id.Alive() { // they may be another process's
		err = procid.ErrGone
	}
	return m, err
}

// ErrUsers is returned for a container in another user namespace than the pod's.
var ErrUsers = errdefs.ErrFailedPrecondition.WithMessage("linux.uidMappings: all containers of a VM must have the same mappings")

// agree returns an error unless directories are for the same users as the pod's other ones. The first ones decide. The
// caller holds mu.
func (s *Set) agree(all []store.Share) error {
	for _, one := range all {
		if len(s.all) > 0 && one.Staging.Users != s.users {
			return ErrUsers
		}
		s.users = one.Staging.Users
		s.all[Name(one)] = one
	}
	return nil
}

// check returns an error unless a running server has the mappings of the pod's users.
func (s *Set) check(server procid.ID) error {
	s.mu.Lock()
	want := s.users
	s.mu.Unlock()
	if os.Geteuid() != 0 {
		return nil // its server has the user's own mapping
	}
	switch got, err := usersOf(server); {
	case err != nil:
		return err
	case got != want:
		return ErrUsers
	}
	return nil
}

// admit lets surrogates in a user namespace use the pod's socket for them. Only the namespace's root group gets in, and
// the shim's next sockets have the same group.
func admit(dir string, users userns.Mappings) error {
	if users == (userns.Mappings{}) {
		return nil
	}
	_, group, err := users.Root()
	if err != nil {
		return &failure.Error{Class: errdefs.ErrNotImplemented, Text: "linux.uidMappings", Err: err}
	}
	if err := admitGroup(dir, group); err != nil {
		return fmt.Errorf("let group %d use %s/%s: %w", group, dir, hostio.Name, err)
	}
	return nil
}

func admitGroup(dir string, group int) error {
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	socket, err := unix.Openat(root, hostio.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	var owner, file unix.Stat_t
	if err := errors.Join(unix.Fstat(root, &owner), unix.Fstat(socket, &file)); err != nil {
		return err
	}
	if file.Mode&unix.S_IFMT != unix.S_IFSOCK || file.Uid != owner.Uid || file.Nlink != 1 {
		return fmt.Errorf("%w: mode %o, user %d, %d names", hostio.ErrForeign, file.Mode, file.Uid, file.Nlink)
	}
	if err := unix.Fchownat(socket, "", -1, group, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	if err := unix.Fchown(root, -1, group); err != nil {
		return err
	}
	return unix.Fchmod(root, unix.S_ISGID|0o710)
}
