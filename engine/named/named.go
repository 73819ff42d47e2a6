// Package named manages named volumes. They outlive the pods, the engines and the boots of the host, until a user
// removes them.
//
//	$DATA/volumes/NAME/volume.json   the record
//	$DATA/volumes/NAME/files/        the directory of a Shared volume
//	$DATA/volumes/NAME/disk.img      the sparse disk of the others; its length is the volume's size
//
// A volume is created under another name, synced, and renamed. It is renamed before its removal. After a crash it
// is complete or absent; Reap removes the rest. Processes that create, remove or grow volumes take turns. Readers
// do not.
package named

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// Kind is the kind of a volume.
type Kind string

// The kinds.
const (
	Disk   Kind = "disk"   // an ext4 of its size, for one pod at a time
	Shared Kind = "shared" // a directory of the host, for any number of pods
	Block  Kind = "block"  // a raw disk, for one pod at a time
)

// DefaultSize is the size of a volume without a stated size, in bytes.
const DefaultSize = 10 << 30

// The errors of this package, matched with errors.Is.
var (
	ErrName = errdefs.ErrInvalidArgument.WithMessage(
		"not a name for a volume: letters, digits, _, . and - after a letter or digit, at most 255")
	ErrNotFound = errdefs.ErrNotFound.WithMessage("no such volume")
	ErrExists   = errdefs.ErrAlreadyExists.WithMessage("the volume exists already")
	ErrInUse    = errdefs.ErrFailedPrecondition.WithMessage("volume is in use")
	ErrSize     = errdefs.ErrInvalidArgument.WithMessage("invalid size of a volume")
	ErrInvalid  = errdefs.ErrInvalidArgument.WithMessage("invalid volume")
)

// Volume describes a volume. The caller owns it.
type Volume struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Bytes is the size; for a Shared volume it is not enforced.
	Bytes   int64             `json:"bytes"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
	// Claim is the NAMESPACE/NAME of the claim for which the volume was created, or empty. Modes are that claim's
	// access modes.
	Claim string   `json:"claim,omitempty"`
	Modes []string `json:"modes,omitempty"`
	// Damage says why the volume cannot be used, or is empty. A damaged volume can be removed.
	Damage string `json:"-"`
}

const (
	recordFile = "volume.json"
	filesDir   = "files"
	diskFile   = "disk.img"
	// makingDir is the directory of the one volume that is being created. Names with gonePrefix are volumes that
	// are being removed. Neither is a valid volume name.
	makingDir  = ".making"
	gonePrefix = ".gone-"
	lockFile   = ".lock"
)

// maxLabels bounds the labels of a volume, in bytes.
const maxLabels = 64 << 10

// Store manages the volumes of a directory. Its methods are safe for concurrent use, also by several processes.
type Store struct{ dir string }

// In returns the store below an existing data directory. It creates nothing yet.
func In(data string) *Store { return &Store{dir: filepath.Join(data, "volumes")} }

// Dir returns the directory of a volume, existing or not. The name must pass Check.
func (s *Store) Dir(name string) string { return filepath.Join(s.dir, name) }

// Files returns the directory of a Shared volume.
func (s *Store) Files(name string) string { return filepath.Join(s.dir, name, filesDir) }

// Image returns the file of a Disk or a Block volume.
func (s *Store) Image(name string) string { return filepath.Join(s.dir, name, diskFile) }

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)

// Check refuses invalid names of volumes: ErrName.
func Check(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%.300q: %w", name, ErrName)
	}
	return nil
}

// check validates a volume that is to be created, and fills in defaults.
func (v *Volume) check() error {
	if err := Check(v.Name); err != nil {
		return err
	}
	if v.Bytes == 0 {
		v.Bytes = DefaultSize
	}
	labels := 0
	for key, value := range v.Labels {
		labels += len(key) + len(value)
	}
	switch {
	case v.Kind != Disk && v.Kind != Shared && v.Kind != Block:
		return fmt.Errorf("volume %s: %w: kind %.64q", v.Name, ErrInvalid, v.Kind)
	case labels > maxLabels:
		return fmt.Errorf("volume %s: %w: %d bytes of labels, at most %d", v.Name, ErrInvalid, labels, maxLabels)
	case v.Bytes < 0, v.Kind != Shared && v.Bytes > scratch.MaxSize:
		return fmt.Errorf("volume %s: %w: %d bytes, at most %d", v.Name, ErrSize, v.Bytes, int64(scratch.MaxSize))
	}
	if v.Kind != Shared {
		v.Bytes = scratch.Rounded(v.Bytes)
	}
	return nil
}

// Get reads a volume: ErrName, ErrNotFound. For a damaged volume it returns the known fields.
func (s *Store) Get(name string) (Volume, error) {
	if err := Check(name); err != nil {
		return Volume{}, err
	}
	info, err := os.Lstat(s.Dir(name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return Volume{}, fmt.Errorf("volume %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return Volume{}, fmt.Errorf("read volume %s: %w", name, err)
	}
	var v Volume
	err = atomicfile.ReadJSON(filepath.Join(s.Dir(name), recordFile), &v)
	if err == nil {
		err = s.measure(name, &v)
	}
	if err != nil {
		v = Volume{Name: name, Created: info.ModTime(), Damage: err.Error()}
		if _, gone := os.Lstat(s.Dir(name)); errors.Is(gone, fs.ErrNotExist) {
			return Volume{}, fmt.Errorf("volume %s: %w", name, ErrNotFound)
		}
	}
	return v, nil
}

// measure checks a record against the volume's files. The length of a disk is its size, so a crash during its
// growth needs no repair.
func (s *Store) measure(name string, v *Volume) error {
	if v.Name != name {
		return fmt.Errorf("record of volume %s: %w", name, atomicfile.ErrCorrupt)
	}
	path := s.Image(name)
	if v.Kind == Shared {
		path = s.Files(name)
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case v.Kind == Shared && info.IsDir():
		return nil
	case (v.Kind == Disk || v.Kind == Block) && info.Mode().IsRegular():
		v.Bytes = info.Size()
		return nil
	}
	return fmt.Errorf("volume %s: %w: its files are not those of a %.64q volume", name, atomicfile.ErrCorrupt, v.Kind)
}

// List returns all volumes, sorted by name.
func (s *Store) List() (all []Volume, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the volumes: %w", err)
	}
	for _, e := range entries {
		v, err := s.Get(e.Name())
		switch {
		case errors.Is(err, ErrName), errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		default:
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Volume) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
