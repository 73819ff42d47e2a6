package mounts

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// maxDamaged bounds what is looked at of a record that cannot be read, in bytes.
const maxDamaged = 1 << 20

// damaged is a record that cannot be read.
type damaged struct {
	why error
	// volume is the attached volume that it may be of, empty for none or one that is not known.
	volume corev1.UniqueVolumeName
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
	if gone && d.volume != "" {
		m.o.Changed()
	}
	if gone {
		return nil
	}
	return d.why
}

// salvage is the volume that a damaged record names. Where the record ends before it says so, the volume is taken for attached.
func salvage(path string) corev1.UniqueVolumeName {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	in := json.NewDecoder(io.LimitReader(f, maxDamaged))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return ""
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
	if !r.Attach || r.Inline || !safeName.MatchString(r.Driver) || r.Handle == "" || len(r.Handle) > maxHandle {
		return ""
	}
	return UniqueName(r.Driver, r.Handle)
}
