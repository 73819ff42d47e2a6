package logs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// TestNewestRecord: the newer valid record counts, in either position. Without a valid record the file is damaged.
func TestNewestRecord(t *testing.T) {
	of := func(seq uint64, out, err, length int64) []byte {
		return record{seq: seq, logged: [streams]int64{out, err}, length: length}.encode()
	}
	older, newer := of(4, 1, 2, 3), of(5, 10, 20, 30)
	broken := bytes.Clone(newer)
	broken[recordSize-1]++
	for _, tc := range []struct {
		name string
		file [][]byte
		want uint64 // 0 if the file is damaged
	}{
		{name: "the newer is first", file: [][]byte{newer, older}, want: 5},
		{name: "the newer is last", file: [][]byte{older, newer}, want: 5},
		{name: "the newer is damaged", file: [][]byte{older, broken}, want: 4},
		{name: "the first is damaged", file: [][]byte{broken, older}, want: 4},
		{name: "the second was cut off", file: [][]byte{older, newer[:recordSize-1]}, want: 4},
		{name: "the first alone", file: [][]byte{older}, want: 4},
		{name: "both are damaged", file: [][]byte{broken, broken}},
		{name: "nothing", file: nil},
		{name: "negative output", file: [][]byte{of(9, -1, 2, 3), older}, want: 4},
		{name: "negative errors", file: [][]byte{of(9, 1, -2, 3), older}, want: 4},
		{name: "negative length", file: [][]byte{of(9, 1, 2, -3), older}, want: 4},
	} {
		path := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(path, bytes.Join(tc.file, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		f, r, err := openRecord(path)
		if tc.want == 0 {
			if !errors.Is(err, atomicfile.ErrCorrupt) {
				t.Errorf("%s: %+v, %v", tc.name, r, err)
			}
			continue
		}
		if err != nil || r.seq != tc.want {
			t.Errorf("%s: record %d, %v, want %d", tc.name, r.seq, err, tc.want)
			continue
		}
		f.Close()
	}
}
