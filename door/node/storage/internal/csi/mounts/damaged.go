package mounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// maxDamaged limits how much of an unreadable record is parsed, in bytes.
const maxDamaged = 1 << 20

// damaged is a record that cannot be read.
type damaged struct {
	why error
	// volume is the volume of the record, or empty if unknown. In that case it may be any volume.
	volume corev1.UniqueVolumeName
	// attached is set if the volume is known and may be attached.
	attached bool
}

// damage returns why a record cannot be read, or nil. It drops a record if its file has been removed.
func (m *Mounter) damage(k key) error {
	m.mu.Lock()
	d, is := m.damaged[k]
	gone := false
	if is {
		_, err := os.Lstat(m.file(k))
		if gone = errors.Is(err, os.ErrNotExist); gone {
			delete(m.damaged, k)
		}
	}
	m.mu.Unlock()
	if gone && d.attached {
		m.o.Changed()
	}
	if gone {
		return nil
	}
	return d.why
}

// checkDamaged returns an error while a damaged record may belong to the same volume as r, because another pod may use
// the staged volume.
func (m *Mounter) checkDamaged(r *record) error {
	m.mu.Lock()
	var keys []key
	for k, d := range m.damaged {
		if d.volume == "" || d.volume == UniqueName(r.Driver, r.Handle) {
			keys = append(keys, k)
		}
	}
	m.mu.Unlock()
	for _, k := range keys {
		if err := m.damage(k); err != nil {
			const what = "the volume stays staged, because pod %s may use it: %w; after checking, remove the file"
			return fmt.Errorf(what, k.uid, err)
		}
	}
	return nil
}

// readDamaged reads the volume from a damaged record. If the record ends before the attach field, the volume counts as
// attached.
func readDamaged(path string) (volume corev1.UniqueVolumeName, attached bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	in := json.NewDecoder(io.LimitReader(f, maxDamaged))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	r := record{Attach: true}
	for {
		t, err := in.Token()
		if err != nil {
			break
		}
		name, is := t.(string)
		if !is { // end of the record: a missing field is false
			r.Attach = false
			break
		}
		into, known := map[string]any{"driver": &r.Driver, "handle": &r.Handle, "inline": &r.Inline, "attach": &r.Attach}[name]
		var value json.RawMessage
		if in.Decode(&value) != nil || known && json.Unmarshal(value, into) != nil {
			break
		}
		if name == "attach" {
			break
		}
	}
	if !safeName.MatchString(r.Driver) || r.Handle == "" || len(r.Handle) > maxHandle {
		return "", false
	}
	return UniqueName(r.Driver, r.Handle), r.Attach && !r.Inline
}
