package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// parse returns the entries that are not done, oldest first, and the offset of the end of the last whole line.
func parse(data []byte) ([]Entry, int64, error) {
	var entries []Entry
	var end int64
	for n := 1; ; n++ {
		text, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return entries, end, nil
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w: %w", n, atomicfile.ErrCorrupt, err)
		}
		if l.ID == "" || !l.Done && l.Kind == "" {
			return nil, 0, fmt.Errorf("line %d: %w: it must be an entry or a mark", n, atomicfile.ErrCorrupt)
		}
		if l.Done {
			entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.ID == l.ID })
		} else {
			entries = append(entries, l.Entry)
		}
		end += int64(len(text)) + 1
		data = rest
	}
}
