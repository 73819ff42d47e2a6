// Package named keeps named volumes: what outlives the pods that store it, every engine and
// every boot, until somebody removes it.
//
//	$DATA/volumes/NAME/volume.json   what it is
//	$DATA/volumes/NAME/files/        the directory of a Shared one
//	$DATA/volumes/NAME/disk.img      the disk of the others, sparse, as long as the volume is large
//
// A volume is made under another name, synced, and renamed; it is renamed before it is removed.
// A crash leaves it whole or not at all, and something nameless for Reap. Who makes, removes
// and grows volumes takes turns, across processes; who reads needs no turn.
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

	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// Kind is what a volume is.
type Kind string

// The kinds.
const (
	Disk   Kind = "disk"   // an ext4 of its size, with one pod at a time
	Shared Kind = "shared" // a directory of the host's, for any number of pods
	Block  Kind = "block"  // a bare disk, with one pod at a time
)

// DefaultSize is that of a volume for which nobody says one, in bytes.
const DefaultSize = 10 << 30

// The errors of this package, matched with errors.Is.
var (
	ErrName     = errors.New("not a name for a volume: letters, digits, _, . and - after a letter or digit, at most 255")
	ErrNotFound = errors.New("no such volume")
	ErrExists   = errors.New("there is such a volume")
	ErrInUse    = errors.New("volume is in use")
	ErrSize     = errors.New("impossible size of a volume")
	ErrInvalid  = errors.New("impossible volume")
)

// Volume is what is known of one. It is the caller's own.
type Volume struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Bytes is its size, which a Shared one only promises.
	Bytes   int64             `json:"bytes"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
	// Claim is NAMESPACE/NAME of the claim that it was made for, empty for none, and Modes
	// that claim's access modes.
	Claim string   `json:"claim,omitempty"`
	Modes []string `json:"modes,omitempty"`
	// Damage says why the volume cannot be used, as nobody can tell what it is. It can be
	// removed. Empty is none.
	Damage string `json:"-"`
}

const (
	recordFile = "volume.json"
	filesDir   = "files"
	diskFile   = "disk.img"
	// makingDir is where one is made; there is one at a time. What has been renamed to be
	// removed begins with gonePrefix. Neither is a volume's name.
	makingDir  = ".making"
	gonePrefix = ".gone-"
	lockFile   = ".lock"
)

// maxLabels bounds the labels of a volume, in bytes.
const maxLabels = 64 << 10

// Store is the volumes of a directory. Its methods may be called at once, by many processes.
type Store struct{ dir string }

// In is the store below a data directory, which exists. Nothing is made yet.
func In(data string) *Store { return &Store{dir: filepath.Join(data, "volumes")} }

// Dir is where the volume is, whether there is one or not; its name is one that Check knows.
func (s *Store) Dir(name string) string { return filepath.Join(s.dir, name) }

// Files is the directory of a Shared volume.
func (s *Store) Files(name string) string { return filepath.Join(s.dir, name, filesDir) }

// Image is the file of a Disk or a Block volume.
func (s *Store) Image(name string) string { return filepath.Join(s.dir, name, diskFile) }

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)

// Check refuses what no volume is called: ErrName.
func Check(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%.300q: %w", name, ErrName)
	}
	return nil
}

// check completes a volume that is to be made.
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

// Get reads a volume: ErrName, ErrNotFound. Of one that is damaged it tells what it can.
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

// measure checks a record against what lies beside it. The length of a disk is its size: a
// crash in the middle of its growth leaves nothing to mend.
func (s *Store) measure(name string, v *Volume) error {
	if v.Name != name {
		return fmt.Errorf("the record of volume %s: %w", name, atomicfile.ErrCorrupt)
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
	return fmt.Errorf("volume %s: %w: it is no %.64q", name, atomicfile.ErrCorrupt, v.Kind)
}

// List reads all volumes, by their names.
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
