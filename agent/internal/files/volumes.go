// Package files stores files that the host sends: volumes of files, and single files of specifications.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// volumesDir has the volumes, in a file system of their own.
const volumesDir = "/run/bulkhead/files"

// Volumes are the volumes with files that the host sends. The zero value has none. It is safe for concurrent use.
type Volumes struct {
	mu  sync.Mutex // held while files are written; guards the following
	all map[string]*volume
}

type volume struct {
	root      *os.Root
	published string // digest of the files that containers see
	stage     *atomicdir.Stage
	staged    string
}

// Write stores a part of a volume's files, and publishes them with the last part. No error contains a file's content.
func (s *Volumes) Write(_ context.Context, r agentv1.Files) (agentv1.FilesState, error) {
	if !containerv1.ValidID(r.Volume) {
		return agentv1.FilesState{}, fmt.Errorf("volume %.64q: name: %w", r.Volume, errdefs.ErrInvalidArgument)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.volume(r.Volume)
	if err == nil {
		err = v.apply(r)
	}
	if err != nil {
		return agentv1.FilesState{}, fmt.Errorf("files of volume %s: %w", r.Volume, err)
	}
	return agentv1.FilesState{Digest: v.published}, nil
}

func (v *volume) apply(r agentv1.Files) error {
	if !r.Begin && !r.Commit && len(r.Entries) == 0 {
		return nil
	}
	if r.Digest == "" || len(r.Digest) > 128 {
		return fmt.Errorf("digest %.64q: %w", r.Digest, errdefs.ErrInvalidArgument)
	}
	if r.Begin {
		if err := v.drop(); err != nil {
			return err
		}
		stage, err := atomicdir.Begin(v.root, r.Group)
		if err != nil {
			return err
		}
		v.stage, v.staged = stage, r.Digest
	}
	if v.stage == nil || v.staged != r.Digest {
		return fmt.Errorf("another set of files is being sent: %w", agentv1.ErrBusy)
	}
	for _, e := range r.Entries {
		err := v.stage.Add(atomicdir.File{Path: e.Path, Mode: fs.FileMode(e.Mode).Perm(), UID: e.UID, GID: e.GID, Data: e.Data})
		if errors.Is(err, atomicdir.ErrPath) {
			err = fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
		if err != nil {
			return errors.Join(err, v.drop())
		}
	}
	if !r.Commit {
		return nil
	}
	stage := v.stage
	v.stage, v.staged = nil, ""
	if r.Digest == v.published {
		return stage.Drop()
	}
	if err := stage.Commit(); err != nil {
		return err
	}
	v.published = r.Digest
	return nil
}

func (v *volume) drop() error {
	if v.stage == nil {
		return nil
	}
	stage := v.stage
	v.stage, v.staged = nil, ""
	return stage.Drop()
}

// volume returns a volume and creates its directory at the first use. The caller holds mu.
func (s *Volumes) volume(name string) (*volume, error) {
	if v := s.all[name]; v != nil {
		return v, nil
	}
	if s.all == nil {
		if err := os.MkdirAll(volumesDir, 0o711); err != nil {
			return nil, err
		}
		if err := unix.Mount("tmpfs", volumesDir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0711"); err != nil {
			return nil, fmt.Errorf("mount %s: %w", volumesDir, err)
		}
		s.all = map[string]*volume{}
	}
	at := filepath.Join(volumesDir, name)
	if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	v := &volume{root: root}
	s.all[name] = v
	return v, nil
}

// At returns the directory of a volume's files, which must have arrived.
func (s *Volumes) At(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.all[name]; v == nil || v.published == "" {
		return "", fmt.Errorf("files of volume %.64q have not arrived: %w", name, errdefs.ErrNotFound)
	}
	return filepath.Join(volumesDir, name), nil
}
