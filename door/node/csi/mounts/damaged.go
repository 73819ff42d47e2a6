package mounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// maxDamaged bounds what is looked at of a record that cannot be read, in bytes.
const maxDamaged = 1 << 20

// damaged is a record that cannot be read.
type damaged struct {
	why error
	// volume is the one that it names, empty for one that is not known. It may be any then.
	volume corev1.UniqueVolumeName
	// attached says that the volume is known, and may be an attached one.
	attached bool
}

// damage is why a record cannot be read, nil for none. One whose file somebody has removed is forgotten.
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

// unknown fails while a damaged record may be of the same volume as r: another pod may use what is staged.
func (m *Mounter) unknown(r *record) error {
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

// salvage is what a damaged record tells of its volume. Where the record ends before it says whether the volume is attached, the
// volume is taken for attached.
func salvage(path string) (volume corev1.UniqueVolumeName, attached bool) {
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
		if !is { // the record's end: what it does not say is not so
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
