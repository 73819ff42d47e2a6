package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// fileVolume is a volume with files that the host sends.
type fileVolume struct {
	root      *os.Root
	published string // digest of the files that containers see
	stage     *atomicdir.Stage
	staged    string
}

// writeFiles stores a part of a volume's files, and publishes them with the last part. No error contains a file's
// content.
func (a *Agent) writeFiles(_ context.Context, r agentv1.Files) (agentv1.FilesState, error) {
	if !containerv1.ValidID(r.Volume) {
		return agentv1.FilesState{}, fmt.Errorf("volume %.64q: name: %w", r.Volume, errdefs.ErrInvalidArgument)
	}
	a.volumes.Lock()
	defer a.volumes.Unlock()
	v, err := a.filesOf(r.Volume)
	if err == nil {
		err = v.apply(r)
	}
	if err != nil {
		return agentv1.FilesState{}, fmt.Errorf("files of volume %s: %w", r.Volume, err)
	}
	return agentv1.FilesState{Digest: v.published}, nil
}

func (v *fileVolume) apply(r agentv1.Files) error {
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

func (v *fileVolume) drop() error {
	if v.stage == nil {
		return nil
	}
	stage := v.stage
	v.stage, v.staged = nil, ""
	return stage.Drop()
}

// filesOf returns a volume and creates its directory at the first use.
func (a *Agent) filesOf(name string) (*fileVolume, error) {
	if v := a.fileVolumes[name]; v != nil {
		return v, nil
	}
	if !a.fileVolumesMounted {
		if err := os.MkdirAll(fileVolumeDir, 0o711); err != nil {
			return nil, err
		}
		if err := unix.Mount("tmpfs", fileVolumeDir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0711"); err != nil {
			return nil, fmt.Errorf("mount %s: %w", fileVolumeDir, err)
		}
		a.fileVolumesMounted = true
	}
	at := filepath.Join(fileVolumeDir, name)
	if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	v := &fileVolume{root: root}
	a.fileVolumes[name] = v
	return v, nil
}

// filesAt returns the directory of a volume's files, which must have arrived.
func (a *Agent) filesAt(name string) (string, error) {
	if !containerv1.ValidID(name) {
		return "", fmt.Errorf("name %.128q: %w", name, errdefs.ErrInvalidArgument)
	}
	a.volumes.Lock()
	defer a.volumes.Unlock()
	if v := a.fileVolumes[name]; v == nil || v.published == "" {
		return "", fmt.Errorf("its files have not arrived: %w", errdefs.ErrNotFound)
	}
	return filepath.Join(fileVolumeDir, name), nil
}
