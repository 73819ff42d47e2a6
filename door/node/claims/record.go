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

// record is what is kept of one volume, in a file of its name: from before it is mounted until it is unmounted.
type record struct {
	// PV is what a claim is bound to, without what is nobody's business here; nil for a volume of the pod's own.
	PV       *corev1.PersistentVolume `json:"pv,omitempty"`
	Block    bool                     `json:"block,omitempty"`
	ReadOnly bool                     `json:"readOnly,omitempty"`
	// Place is where it lies; nil until it is mounted.
	Place *Place `json:"place,omitempty"`
	// damaged: only that there was a volume of this name is known.
	damaged bool
}

// ofDriver tells whether a volume is a CSI driver's. Of a damaged record that is not known.
func (r *record) ofDriver() bool { return !r.damaged && (r.PV == nil || r.PV.Spec.CSI != nil) }

const suffix = ".json"

// trimmed is what is kept of a PersistentVolume.
func trimmed(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	out := &corev1.PersistentVolume{Spec: *pv.Spec.DeepCopy()}
	out.Name, out.UID = pv.Name, pv.UID
	return out
}

// read reads what an earlier process has left. A record that is damaged still names its volume. Where there is no list of records,
// unread says why.
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
		if !is || strings.HasPrefix(name, ".") { // of an interrupted write
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

// erase removes the record of a volume of which nothing is left.
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

// known are the volumes' records.
func (v *Volumes) known() map[string]record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.records)
}
