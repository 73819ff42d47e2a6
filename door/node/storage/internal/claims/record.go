package claims

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// record describes one volume, in a file of the volume's name. It exists from before the mount until after the unmount.
type record struct {
	// PV is the PersistentVolume of a claim, trimmed; nil for an inline volume.
	PV       *corev1.PersistentVolume `json:"pv,omitempty"`
	Block    bool                     `json:"block,omitempty"`
	ReadOnly bool                     `json:"readOnly,omitempty"`
	// Place is the volume's place; nil until it is mounted.
	Place *Place `json:"place,omitempty"`
	// damaged is set if only the volume's name is known.
	damaged bool
}

// ofDriver reports whether the volume belongs to a CSI driver. It is false for a damaged record.
func (r *record) ofDriver() bool { return !r.damaged && (r.PV == nil || r.PV.Spec.CSI != nil) }

const suffix = ".json"

// trimmed returns the parts of a PersistentVolume that a record needs.
func trimmed(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	out := &corev1.PersistentVolume{Spec: *pv.Spec.DeepCopy()}
	out.Name, out.UID = pv.Name, pv.UID
	return out
}

// read reads the records of an earlier process. A damaged record still names its volume. If the directory cannot be
// read, unread has the error.
func (v *Volumes) read() error {
	list, err := os.ReadDir(v.dir)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("read the volumes' records: %w", err)
		v.mu.Lock()
		v.unread = err
		v.mu.Unlock()
		return err
	}
	records := map[string]record{}
	var damaged []error
	for _, file := range list {
		name, is := strings.CutSuffix(file.Name(), suffix)
		if !is || strings.HasPrefix(name, ".") { // left by an interrupted write
			continue
		}
		var r record
		if err := atomicfile.ReadJSON(filepath.Join(v.dir, file.Name()), &r); err != nil {
			r = record{damaged: true}
			damaged = append(damaged, err)
		}
		records[name] = r
	}
	v.mu.Lock()
	v.records, v.unread = records, nil
	v.mu.Unlock()
	return errors.Join(damaged...)
}

// save writes a volume's record.
func (v *Volumes) save(name string, r record) error {
	if !filepath.IsLocal(name) || strings.ContainsRune(name, '/') {
		return fmt.Errorf("invalid volume name %q", name)
	}
	if err := dirs.Ensure(v.dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(filepath.Join(v.dir, name+suffix), r, 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("write the record of volume %q: %w", name, err)
	}
	v.mu.Lock()
	v.records[name] = r
	v.mu.Unlock()
	v.k.keep(v)
	return nil
}

// erase removes the record of an unmounted volume.
func (v *Volumes) erase(name string) error {
	if err := os.Remove(filepath.Join(v.dir, name+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of volume %q: %w", name, err)
	}
	v.mu.Lock()
	delete(v.records, name)
	left := len(v.records)
	v.mu.Unlock()
	if left == 0 {
		v.k.drop(v)
	}
	return nil
}

// known returns the volumes' records.
func (v *Volumes) known() map[string]record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.records)
}
